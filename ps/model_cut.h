// Cuts a model into parts, for a parameter server of several shards, or one to
// which the model travels in pieces.
//
// The cut depends on names, shapes and element types alone, so that workers and
// shards find the same one. A part is a run of consecutive tensors, of which
// the first and the last may be pieces of a tensor.

#ifndef MINIRAY_PS_MODEL_CUT_H_
#define MINIRAY_PS_MODEL_CUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/weight_message.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

// Within a tensor cuts lie at multiples of so many elements: the blocks of
// codecs and of sums over a model, which are thereby the same on any cut.
inline constexpr int64_t kCutGrid = 4096;

// Consecutive elements of one tensor.
struct TensorRange {
  size_t tensor = 0;
  int64_t begin = 0;
  int64_t size = 0;
};
using ModelPart = std::vector<TensorRange>;

// Returns parts of about the same number of bytes: each begins at the tensor's
// border or grid point that is closest to its share, so they differ by at most
// one grid step or small tensor on each side. All elements are in one part, in
// their order; none is empty.
//
// num_parts: at least 1. Errors: INVALID_ARGUMENT, there are fewer tensors and
// grid steps than parts.
absl::StatusOr<std::vector<ModelPart>> CutModel(const NamedTensors& model,
                                                int64_t num_parts);

// The most parts that CutModel makes of it.
int64_t MaxParts(const NamedTensors& model);

// Returns the tensors of a part, which share the model's memory where that is
// contiguous: a whole tensor as it is, a piece as a vector. They keep their
// names.
NamedTensors TensorsOfPart(const NamedTensors& model, const ModelPart& part);

// Copies the tensors of a part to where they belong in the model.
// REQUIRES: they are those of TensorsOfPart up to their values; the model is
// contiguous and on the CPU.
void CopyPart(const NamedTensors& tensors, const ModelPart& part,
              NamedTensors* model);

// What WeightMessage::parts says of them.
std::vector<TensorPart> PlacesOfPart(const NamedTensors& model,
                                     const ModelPart& part);

// The inverse: puts the parts of a model together, in memory of its own.
//
// messages: `tensors` and `parts` of all parts in their order.
// Errors: INVALID_ARGUMENT, they are not the parts of one model.
absl::StatusOr<NamedTensors> JoinParts(
    absl::Span<const WeightMessage* const> messages);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_MODEL_CUT_H_
