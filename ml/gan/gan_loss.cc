#include "ml/gan/gan_loss.h"

#include "ATen/TensorOperators.h"
#include "ATen/ops/binary_cross_entropy_with_logits.h"
#include "ATen/ops/ones_like.h"
#include "ATen/ops/relu.h"
#include "ATen/ops/zeros_like.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace miniray::ml {

absl::StatusOr<GanLoss> ParseGanLoss(absl::string_view name) {
  if (name == "non_saturating") return GanLoss::kNonSaturating;
  if (name == "hinge") return GanLoss::kHinge;
  return absl::InvalidArgumentError(absl::StrCat(
      "the loss is '", name, "'; expected non_saturating or hinge"));
}

at::Tensor DiscriminatorLoss(GanLoss loss, const at::Tensor& logits,
                             double label_smoothing) {
  const int64_t batch = logits.size(0) / 2;
  if (loss == GanLoss::kHinge) {
    const at::Tensor real = logits.slice(/*dim=*/0, 0, batch);
    const at::Tensor fake = logits.slice(/*dim=*/0, batch);
    return at::relu(1 - real).mean() + at::relu(1 + fake).mean();
  }
  const at::Tensor targets = at::zeros_like(logits);
  targets.slice(/*dim=*/0, 0, batch).fill_(1 - label_smoothing);
  return at::binary_cross_entropy_with_logits(logits, targets);
}

at::Tensor GeneratorLoss(GanLoss loss, const at::Tensor& logits) {
  if (loss == GanLoss::kHinge) return -logits.mean();
  return at::binary_cross_entropy_with_logits(logits, at::ones_like(logits));
}

}  // namespace miniray::ml
