// A distance from real images, whose statistics are kept on the disk, as often
// as one likes: at the end of training, or every few epochs of it.

#ifndef MINIRAY_ML_METRICS_FID_EVALUATION_H_
#define MINIRAY_ML_METRICS_FID_EVALUATION_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/cli/progress_bar.h"
#include "ml/gan/architecture.h"
#include "ml/metrics/feature_extractor.h"
#include "ml/metrics/feature_statistics.h"
#include "ml/metrics/fid_team.h"

namespace miniray::ml {

struct FidResult {
  std::string name;  // FeatureExtractor::DistanceName.
  double distance = 0;
  int64_t real_images = 0;
  int64_t generated_images = 0;
  int64_t features = 0;
  bool from_cache = false;  // The statistics of the real images.
  double seconds = 0;       // For the generated ones.
};

// Returns a line for what is compared by fewer images than features; else
// empty.
std::string FewImagesWarning(const FidResult& result);

// Not thread-safe.
class FidEvaluation {
 public:
  // Loads the extractor once, so that what is wrong with it is known before
  // there are workers.
  //
  // shape: of the generator's images.
  // cache_dir: of the real images' statistics; empty: none are kept.
  // Errors: those of FeatureExtractor::Create; INVALID_ARGUMENT, it takes no
  // such images.
  static absl::StatusOr<FidEvaluation> Create(const ExtractorFile& extractor,
                                              const ImageShape& shape,
                                              std::string cache_dir);

  // FeatureExtractor::DistanceName.
  const std::string& name() const { return name_; }

  // Takes the statistics of the real images: those in the cache, or what the
  // team computes, which goes there. Prints a line. A file of the cache that is
  // damaged, or cannot be written, or data that cannot be listed, is worth a
  // line, and no error.
  // Errors: those of the team.
  absl::Status LoadReal(FidTeam* team, ProgressBar* bar);

  // Compares generated images with them.
  //
  // count: of images of the sequence that `seed` names, at least 2.
  // REQUIRES: LoadReal was OK.
  // Errors: those of the team; INVALID_ARGUMENT, less than two images.
  absl::StatusOr<FidResult> Compare(FidTeam* team, uint64_t seed, int64_t count,
                                    ProgressBar* bar) const;

 private:
  FidEvaluation(std::string name, std::string key, std::string cache_dir)
      : name_(std::move(name)),
        key_(std::move(key)),
        cache_dir_(std::move(cache_dir)) {}

  // The real images' key in the cache; empty: nothing is looked up and nothing
  // kept.
  std::string CacheKey(FidTeam* team, ProgressBar* bar) const;

  std::string name_;
  std::string key_;  // What statistics depend on besides the data.
  std::string cache_dir_;
  FeatureStatistics real_;
  bool from_cache_ = false;
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_METRICS_FID_EVALUATION_H_
