#include "ps/weight_view.h"

#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "ps/compression/difference.h"
#include "ps/kernels.h"
#include "ps/parallel_for.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

// Elements that one thread works on at a time.
constexpr int64_t kPiece = 1 << 18;

// Returns own + (theirs - view), rounded once, of float32.
at::Tensor Moved(const at::Tensor& own, const at::Tensor& theirs,
                 const at::Tensor& view) {
  const at::Tensor inputs[] = {own.contiguous(), theirs.cpu().contiguous(),
                               view.contiguous()};
  at::Tensor sum = at::empty(own.sizes(), at::dtype(at::kFloat));
  const int64_t numel = own.numel();
  ParallelFor((numel + kPiece - 1) / kPiece, [&](int64_t piece) {
    const int64_t begin = piece * kPiece;
    const float* parts[3];
    for (size_t i = 0; i < 3; ++i) {
      parts[i] = inputs[i].data_ptr<float>() + begin;
    }
    LinearCombination(parts, {1.0, 1.0, -1.0}, std::min(kPiece, numel - begin),
                      sum.data_ptr<float>() + begin);
  });
  return sum;
}

}  // namespace

WeightRequest WeightView::RequestTo(int64_t worker) const {
  WeightRequest request = {.worker = worker,
                           .part = options_.part,
                           .num_parts = options_.num_parts,
                           .base = full_.id,
                           .compression = options_.from_workers};
  for (size_t i = 0; i < is_buffer_.size(); ++i) {
    if (is_buffer_[i]) request.as_they_are.push_back(full_.tensors[i].first);
  }
  return request;
}

absl::StatusOr<NamedTensors> WeightView::ContributionIn(
    const WeightMessage& message, const NamedTensors& weights,
    bool* holds_view) const {
  if (message.part != options_.part ||
      message.num_parts != options_.num_parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("SendWeights returned part ", message.part, " of ",
                     message.num_parts, ", and was asked for part ",
                     options_.part, " of ", options_.num_parts));
  }
  if (options_.num_parts > 1 &&
      message.parts.size() != message.tensors.size()) {
    return absl::InvalidArgumentError(
        "SendWeights does not tell where the tensors of its part lie");
  }
  *holds_view = !full_.id.empty() && message.base == full_.id;
  if (message.compression.method != Compression::kNone) {
    MR_RETURN_IF_ERROR(Validate(message.compression, "compression"));
    if (!*holds_view) {
      return absl::InvalidArgumentError(
          "SendWeights returned a difference to other weights than was asked "
          "for");
    }
    return ApplyDifference(message.compression, message.tensors, weights);
  }
  if (!*holds_view || options_.to_workers.method == Compression::kNone ||
      !SameLayout(message.tensors, weights)) {
    return message.tensors;
  }
  NamedTensors moved = message.tensors;
  for (size_t i = 0; i < moved.size(); ++i) {
    if (moved[i].second.scalar_type() != at::kFloat || is_buffer_[i]) continue;
    moved[i].second =
        Moved(weights[i].second, moved[i].second, full_.tensors[i].second);
  }
  return moved;
}

void WeightView::Follow(const NamedTensors& weights,
                        const std::vector<TensorInfo>& info,
                        std::vector<int64_t> contributors,
                        const std::string& id) {
  if (full_.id.empty() || options_.to_workers.method == Compression::kNone) {
    Replace(weights, info, id);
    full_.contributors = std::move(contributors);
    return;
  }
  NoteBuffers(info);
  Difference difference = EncodeDifference({.compression = options_.to_workers,
                                            .to = &weights,
                                            .from = &full_.tensors,
                                            .as_it_is = is_buffer_,
                                            .wants_reached = true});
  difference_ = full_;
  difference_->base = std::exchange(full_.id, id);
  difference_->id = id;
  difference_->compression = options_.to_workers;
  difference_->tensors = std::move(difference.encoded);
  difference_->contributors = contributors;
  full_.tensors = std::move(difference.reached);
  full_.contributors = std::move(contributors);
}

void WeightView::Replace(const NamedTensors& weights,
                         const std::vector<TensorInfo>& info,
                         const std::string& id) {
  Restore(weights, info, {}, id);
}

void WeightView::Restore(NamedTensors tensors,
                         const std::vector<TensorInfo>& info,
                         std::vector<int64_t> contributors,
                         const std::string& id) {
  NoteBuffers(info);
  difference_.reset();
  full_.id = id;
  full_.part = options_.part;
  full_.num_parts = options_.num_parts;
  full_.tensors = std::move(tensors);
  full_.contributors = std::move(contributors);
}

void WeightView::NoteBuffers(const std::vector<TensorInfo>& info) {
  is_buffer_.clear();
  for (const TensorInfo& tensor : info) is_buffer_.push_back(tensor.is_buffer);
}

}  // namespace miniray::ps
