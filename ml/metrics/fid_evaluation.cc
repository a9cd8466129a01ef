#include "ml/metrics/fid_evaluation.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "ml/metrics/frechet_distance.h"
#include "ml/metrics/statistics_cache.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

absl::StatusOr<Gaussian> GaussianOf(const FeatureStatistics& statistics,
                                    absl::string_view whose) {
  absl::StatusOr<at::Tensor> covariance = statistics.Covariance();
  if (!covariance.ok()) return Annotate(covariance.status(), whose);
  return Gaussian{.mean = statistics.mean,
                  .covariance = *std::move(covariance)};
}

}  // namespace

std::string FewImagesWarning(const FidResult& result) {
  const int64_t fewest = std::min(result.real_images, result.generated_images);
  if (fewest > result.features) return "";
  return absl::StrCat("Warning: ", fewest, " images for ", result.features,
                      " features: the distance is too large, and only to be "
                      "compared with others of as many images");
}

absl::StatusOr<FidEvaluation> FidEvaluation::Create(
    const ExtractorFile& extractor, const ImageShape& shape,
    std::string cache_dir) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<FeatureExtractor> loaded,
                      FeatureExtractor::Create(extractor));
  const at::Tensor black =
      at::zeros({2, shape.channels, shape.height, shape.width}, at::kByte);
  const absl::Status fits = loaded->Extract(black).status();
  if (!fits.ok()) {
    return Annotate(fits,
                    absl::StrCat(extractor.name, ": images of the generator"));
  }
  // With the shape, so that those of images of another one are not found.
  return FidEvaluation(loaded->DistanceName(),
                       absl::StrCat(", images of ", shape.ToString(), "; ",
                                    ExtractorIdentity(extractor)),
                       std::move(cache_dir));
}

std::string FidEvaluation::CacheKey(FidTeam* team, ProgressBar* bar) const {
  if (cache_dir_.empty()) return "";
  const absl::StatusOr<std::string> data = team->Identity();
  if (data.ok()) return absl::StrCat(*data, key_);
  bar->Print(
      absl::StrCat("Warning: statistics of the real images cannot be kept: ",
                   data.status().message()));
  return "";
}

absl::Status FidEvaluation::LoadReal(FidTeam* team, ProgressBar* bar) {
  const std::string key = CacheKey(team, bar);
  if (!key.empty()) {
    absl::StatusOr<FeatureStatistics> cached = LoadStatistics(cache_dir_, key);
    if (cached.ok()) {
      bar->Print(absl::StrCat("Real images: ", cached->count, ", from ",
                              StatisticsPath(cache_dir_, key)));
      real_ = *std::move(cached);
      from_cache_ = true;
      return absl::OkStatus();
    }
    if (!absl::IsNotFound(cached.status())) {
      bar->Print(absl::StrCat(
          "Warning: statistics of an earlier run: ", cached.status().message(),
          "; they are computed anew"));
    }
  }
  FidProgress progress(bar, "real images");
  MR_ASSIGN_OR_RETURN(real_, team->Real(&progress));
  from_cache_ = false;
  bar->Print(absl::StrFormat("Real images: %d, %.1f s", real_.count,
                             progress.seconds()));
  if (!key.empty()) {
    const absl::Status stored = StoreStatistics(cache_dir_, key, real_);
    if (!stored.ok()) {
      bar->Print(absl::StrCat("Warning: the statistics cannot be kept: ",
                              stored.message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<FidResult> FidEvaluation::Compare(FidTeam* team, uint64_t seed,
                                                 int64_t count,
                                                 ProgressBar* bar) const {
  FidProgress progress(bar, "generated images");
  MR_ASSIGN_OR_RETURN(const FeatureStatistics generated,
                      team->Generated(seed, count, &progress));
  FidResult result = {.name = name_,
                      .real_images = real_.count,
                      .generated_images = generated.count,
                      .features = generated.num_features(),
                      .from_cache = from_cache_,
                      .seconds = progress.seconds()};
  MR_ASSIGN_OR_RETURN(const Gaussian a, GaussianOf(real_, "real images"));
  MR_ASSIGN_OR_RETURN(const Gaussian b,
                      GaussianOf(generated, "generated images"));
  MR_ASSIGN_OR_RETURN(result.distance, FrechetDistance(a, b));
  return result;
}

}  // namespace miniray::ml
