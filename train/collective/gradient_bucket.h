// GradientBucket: gradients that travel together.
//
// A part of DistributedModule.

#ifndef MINIRAY_TRAIN_COLLECTIVE_GRADIENT_BUCKET_H_
#define MINIRAY_TRAIN_COLLECTIVE_GRADIENT_BUCKET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "train/collective/backend.h"
#include "train/collective/distributed_module.h"

namespace miniray::train::internal {

// Which parameters share buckets: lists of indices into `parameters`, in the
// order in which the buckets travel. Parameters are taken in the order `order`;
// a bucket holds one type and is full once it has reached its size, which is
// first_bucket_bytes for the first one of each type.
//
// order: a permutation of all indices.
std::vector<std::vector<size_t>> AssignBuckets(
    const std::vector<at::Tensor>& parameters, const std::vector<size_t>& order,
    const DistributedOptions& options);

// The mean over all ranks of one flat piece of memory, on the gradients'
// device. What the ranks call, in the same order for all of their buckets:
//
//   Put of each gradient; Launch; Continue; Finish; Get of each gradient.
//
// All throw what the backend throws.
class GradientBucket {
 public:
  // gradients: how they will look, all of one floating-point type and device.
  GradientBucket(const std::vector<at::Tensor>& gradients,
                 GradientCompression compression, int world_size);

  // Sets the `slot`th gradient of this rank; an undefined one counts as zero.
  void Put(size_t slot, const at::Tensor& gradient);
  // Begins to exchange.
  void Launch(Backend& backend);
  // Compressed buckets travel twice: waits for the first exchange and begins
  // the second. Does nothing for others.
  void Continue(Backend& backend);
  // Waits for the end.
  void Finish();
  // The `slot`th gradient's mean, in the shape of its gradient, until the next
  // Put. Not always of its type.
  at::Tensor Get(size_t slot) const { return views_[slot]; }

  // What travels from a rank in one pass.
  int64_t bytes() const;

 private:
  bool compressed() const { return compression_ != GradientCompression::kNone; }
  at::ScalarType wire_type() const;

  const GradientCompression compression_;
  const int world_size_;
  // [E], E = all elements; compressed: a multiple of world_size. float32, or
  // float64 where gradients are and nothing is compressed.
  at::Tensor flat_;
  std::vector<at::Tensor> views_;  // Of flat_, by slot.
  at::Tensor sent_;                // [2 E] bytes, compressed only.
  at::Tensor received_;            // [2 E] bytes, compressed only.
  std::unique_ptr<Work> work_;
};

}  // namespace miniray::train::internal

#endif  // MINIRAY_TRAIN_COLLECTIVE_GRADIENT_BUCKET_H_
