// Statistics of many images' features, of which a batch at a time is in memory.

#ifndef MINIRAY_ML_METRICS_EXTRACT_STATISTICS_H_
#define MINIRAY_ML_METRICS_EXTRACT_STATISTICS_H_

#include <cstdint>
#include <functional>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "ml/gan/image_generator.h"
#include "ml/metrics/feature_extractor.h"
#include "ml/metrics/feature_statistics.h"

namespace miniray::ml {

// Images whose features are computed at a time.
inline constexpr int64_t kFeatureBatch = ImageGenerator::kBlock;

// Returns uint8 [end - begin, C, H, W].
using ImagesInRange =
    std::function<absl::StatusOr<at::Tensor>(int64_t begin, int64_t end)>;

// Is told how many images are done, and of how many. May be null.
using OnImages = std::function<void(int64_t done, int64_t of)>;

// Of `size` images, which `images` is asked for, one batch behind the other.
// Errors: its own, those of Extract and of FeatureStatistics::Add.
absl::StatusOr<FeatureStatistics> StatisticsOfImages(
    int64_t size, const ImagesInRange& images, FeatureExtractor& extractor,
    const OnImages& on_images = nullptr);

// Of images [first, first + count) of the sequence that `seed` names, as
// pixels, as they are saved.
// Errors: INVALID_ARGUMENT, first < 0 or count < 1; as above.
absl::StatusOr<FeatureStatistics> StatisticsOfGenerator(
    uint64_t seed, int64_t first, int64_t count, ImageGenerator& generator,
    FeatureExtractor& extractor, const OnImages& on_images = nullptr);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_METRICS_EXTRACT_STATISTICS_H_
