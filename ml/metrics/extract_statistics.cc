#include "ml/metrics/extract_statistics.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ml/image/grid.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {

absl::StatusOr<FeatureStatistics> StatisticsOfImages(
    int64_t size, const ImagesInRange& images, FeatureExtractor& extractor,
    const OnImages& on_images) {
  FeatureStatistics statistics;
  for (int64_t begin = 0; begin < size; begin += kFeatureBatch) {
    const int64_t end = std::min(begin + kFeatureBatch, size);
    MR_ASSIGN_OR_RETURN(const at::Tensor batch, images(begin, end));
    MR_ASSIGN_OR_RETURN(const at::Tensor features, extractor.Extract(batch));
    MR_RETURN_IF_ERROR(statistics.Add(features));
    if (on_images != nullptr) on_images(end, size);
  }
  return statistics;
}

absl::StatusOr<FeatureStatistics> StatisticsOfGenerator(
    uint64_t seed, int64_t first, int64_t count, ImageGenerator& generator,
    FeatureExtractor& extractor, const OnImages& on_images) {
  if (first < 0 || count < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("images [", first, ", ", first, " + ", count,
                     "): expected first >= 0 and at least 1 image"));
  }
  return StatisticsOfImages(
      count,
      [&](int64_t begin, int64_t end) {
        return ToUint8(generator.Generate(seed, first + begin, end - begin));
      },
      extractor, on_images);
}

}  // namespace miniray::ml
