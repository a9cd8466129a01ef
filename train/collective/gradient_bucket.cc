#include "train/collective/gradient_bucket.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ATen/ATen.h"

namespace miniray::train::internal {

std::vector<std::vector<size_t>> AssignBuckets(
    const std::vector<at::Tensor>& parameters, const std::vector<size_t>& order,
    const DistributedOptions& options) {
  struct Open {
    size_t bucket = 0;
    int64_t bytes = 0;
    int64_t limit = 0;
    bool full = true;
  };
  std::vector<std::vector<size_t>> buckets;
  std::map<at::ScalarType, Open> open_of_type;
  for (const size_t index : order) {
    const at::Tensor& parameter = parameters[index];
    const auto [it, first] =
        open_of_type.try_emplace(parameter.scalar_type(), Open());
    Open& open = it->second;
    if (open.full) {
      open = {
          .bucket = buckets.size(),
          .limit = first ? options.first_bucket_bytes : options.bucket_bytes,
          .full = false};
      buckets.emplace_back();
    }
    buckets[open.bucket].push_back(index);
    open.bytes += static_cast<int64_t>(parameter.nbytes());
    open.full = open.bytes >= open.limit;
  }
  return buckets;
}

GradientBucket::GradientBucket(const std::vector<at::Tensor>& gradients,
                               GradientCompression compression, int world_size)
    : compression_(compression), world_size_(world_size) {
  int64_t size = 0;
  for (const at::Tensor& gradient : gradients) size += gradient.numel();
  const bool is_double = gradients.front().scalar_type() == at::kDouble;
  const at::ScalarType type =
      is_double && !compressed() ? at::kDouble : at::kFloat;
  const auto options = at::TensorOptions(gradients.front().device());
  if (compressed()) {
    size = (size + world_size - 1) / world_size * world_size;
    sent_ = at::zeros({2 * size}, options.dtype(at::kByte));
    received_ = at::zeros({2 * size}, options.dtype(at::kByte));
  }
  flat_ = at::zeros({size}, options.dtype(type));
  int64_t offset = 0;
  for (const at::Tensor& gradient : gradients) {
    views_.push_back(
        flat_.narrow(0, offset, gradient.numel()).view(gradient.sizes()));
    offset += gradient.numel();
  }
}

at::ScalarType GradientBucket::wire_type() const {
  switch (compression_) {
    case GradientCompression::kFloat16:
      return at::kHalf;
    case GradientCompression::kBfloat16:
      return at::kBFloat16;
    case GradientCompression::kNone:
      break;
  }
  return flat_.scalar_type();
}

int64_t GradientBucket::bytes() const {
  return flat_.numel() * static_cast<int64_t>(c10::elementSize(wire_type()));
}

void GradientBucket::Put(size_t slot, const at::Tensor& gradient) {
  at::Tensor view = views_[slot];
  if (!gradient.defined()) {
    view.zero_();
  } else if (compressed()) {
    // Divided after the sum, where float32 loses nothing of small ones.
    view.copy_(gradient);
  } else if (gradient.scalar_type() == view.scalar_type()) {
    at::mul_out(view, gradient,
                at::scalar_tensor(1.0 / world_size_, view.scalar_type()));
  } else {
    view.copy_(gradient).mul_(1.0 / world_size_);
  }
}

void GradientBucket::Launch(Backend& backend) {
  if (!compressed()) {
    work_ = backend.AllReduce(flat_, ReduceOp::kSum);
    return;
  }
  // Each rank gets its piece of all ranks' gradients.
  sent_.view(wire_type()).copy_(flat_);
  work_ = backend.AllToAll(received_, sent_);
}

void GradientBucket::Continue(Backend& backend) {
  if (!compressed()) return;
  work_->Wait();
  // Sums its piece in float32, and gives the mean to all.
  const at::Tensor mean = received_.view(wire_type())
                              .view({world_size_, -1})
                              .to(at::kFloat)
                              .sum(0)
                              .mul_(1.0 / world_size_)
                              .to(wire_type());
  work_ = backend.AllGather(sent_, mean);
}

void GradientBucket::Finish() {
  work_->Wait();
  work_.reset();
  if (compressed()) flat_.copy_(sent_.view(wire_type()));
}

}  // namespace miniray::train::internal
