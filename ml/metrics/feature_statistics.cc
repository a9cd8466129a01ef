#include "ml/metrics/feature_statistics.h"

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "ml/data/describe_tensor.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

bool IsFinite(const at::Tensor& tensor) {
  return at::isfinite(tensor).all().item<bool>();
}

}  // namespace

absl::Status FeatureStatistics::Add(const at::Tensor& features) {
  if (!features.defined() || !features.is_floating_point() ||
      features.dim() != 2 || features.numel() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("features are ", DescribeTensor(features),
                     "; expected floating [N, F], each at least 1"));
  }
  if (features.size(1) > kMaxFeatures) {
    return absl::InvalidArgumentError(absl::StrCat(
        features.size(1), " features; expected at most ", kMaxFeatures));
  }
  const at::Tensor x = features.detach().to(at::kCPU, at::kDouble);
  if (!IsFinite(x)) {
    return absl::InvalidArgumentError(
        "a feature is infinite or not a number: the extractor overflows, or "
        "its weights are damaged");
  }
  FeatureStatistics batch;
  batch.count = x.size(0);
  batch.mean = x.mean(0);
  const at::Tensor centred = x - batch.mean;
  batch.scatter = at::mm(centred.t(), centred);
  return Merge(batch);
}

absl::Status FeatureStatistics::Merge(const FeatureStatistics& other) {
  MR_RETURN_IF_ERROR(Validate());
  MR_RETURN_IF_ERROR(other.Validate());
  if (other.count == 0) return absl::OkStatus();
  if (count == 0) {
    *this = other;
    return absl::OkStatus();
  }
  if (num_features() != other.num_features()) {
    return absl::InvalidArgumentError(
        absl::StrCat(other.num_features(), " features come to ", num_features(),
                     "; expected as many"));
  }
  const auto here = static_cast<double>(count);
  const auto there = static_cast<double>(other.count);
  const at::Tensor difference = other.mean - mean;
  mean = mean + difference * (there / (here + there));
  scatter = scatter + other.scatter;
  scatter.addr_(difference, difference, 1, here * (there / (here + there)));
  count += other.count;
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> FeatureStatistics::Covariance() const {
  MR_RETURN_IF_ERROR(Validate());
  if (count < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a covariance needs at least two images; there are ", count));
  }
  return scatter / static_cast<double>(count - 1);
}

absl::Status FeatureStatistics::Validate() const {
  if (count == 0 && !mean.defined() && !scatter.defined()) {
    return absl::OkStatus();
  }
  if (count < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("statistics of ", count, " vectors"));
  }
  if (!mean.defined() || mean.scalar_type() != at::kDouble || mean.dim() != 1 ||
      mean.numel() == 0 || mean.numel() > kMaxFeatures ||
      !mean.device().is_cpu()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the mean is ", DescribeTensor(mean),
        "; expected float64 [F] on the CPU, F from 1 to ", kMaxFeatures));
  }
  if (!scatter.defined() || scatter.scalar_type() != at::kDouble ||
      scatter.sizes() != at::IntArrayRef({mean.size(0), mean.size(0)}) ||
      !scatter.device().is_cpu()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the scatter is ", DescribeTensor(scatter),
        "; expected float64 [F, F] with F = ", mean.size(0), " on the CPU"));
  }
  if (!IsFinite(mean) || !IsFinite(scatter)) {
    return absl::InvalidArgumentError("the statistics are not finite");
  }
  return absl::OkStatus();
}

}  // namespace miniray::ml
