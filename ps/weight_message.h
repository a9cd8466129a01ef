// What server and workers tell each other where weights travel compressed or in
// parts: see weight_exchange.h.

#ifndef MINIRAY_PS_WEIGHT_MESSAGE_H_
#define MINIRAY_PS_WEIGHT_MESSAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ps/compression/compression.h"
#include "runtime/tensor/tensor_codec.h"
#include "runtime/wire/codec.h"

namespace miniray::ps {

// Asks a worker for its weights.
struct WeightRequest {
  int64_t worker = 0;  // Its index among the workers.
  // The part of the model that is wanted, of so many (model_cut.h).
  int64_t part = 0;
  int64_t num_parts = 1;
  // Of the difference to the weights of this id, if the worker has them.
  std::string base;
  CompressionOptions compression;
  // Names of tensors that are not compressed: buffers.
  std::vector<std::string> as_they_are;
};
MINIRAY_STRUCT(WeightRequest, worker, part, num_parts, base, compression,
               as_they_are);

// Where a tensor of a part lies in the whole model's.
struct TensorPart {
  int64_t begin = 0;           // First element.
  std::vector<int64_t> shape;  // Of the whole tensor.

  bool operator==(const TensorPart&) const = default;
};
MINIRAY_STRUCT(TensorPart, begin, shape);

// Weights on their way.
struct WeightMessage {
  // From a worker: of the weights that it received last; empty: it has none. To
  // a worker: of those that `tensors` are a difference to; empty: to none.
  std::string base;
  // To a worker: of the weights that it has afterwards.
  std::string id;
  int64_t part = 0;
  int64_t num_parts = 1;
  // A difference, as compression/difference.h has it; kNone: the weights.
  CompressionOptions compression;
  NamedTensors tensors;
  std::vector<TensorPart> parts;  // One for each tensor if num_parts > 1.
  // To a worker: indices of those whose contributions went in; none if the
  // weights come from elsewhere.
  std::vector<int64_t> contributors;
};
MINIRAY_STRUCT(WeightMessage, base, id, part, num_parts, compression, tensors,
               parts, contributors);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_WEIGHT_MESSAGE_H_
