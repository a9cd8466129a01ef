// FidWorker: an actor that computes features of real and generated images, and
// returns their statistics.

#ifndef MINIRAY_ML_METRICS_FID_WORKER_H_
#define MINIRAY_ML_METRICS_FID_WORKER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/gan/architecture.h"
#include "ml/gan/image_generator.h"
#include "ml/metrics/extract_statistics.h"
#include "ml/metrics/feature_extractor.h"
#include "ml/metrics/feature_statistics.h"
#include "runtime/api/miniray.h"

namespace miniray::ml {

// The real images; see DatasetOptions.
struct FidData {
  std::string dataset = "fashion-mnist";
  std::string data_dir;  // On the workers' machines.
  std::string split = "train";
  int64_t limit = 0;  // Images, before sharding; 0: all.
  // Of an image-folder; see ImageFolderOptions.
  int64_t image_size = 64;
  int64_t image_channels = 3;
};
MINIRAY_STRUCT(FidData, dataset, data_dir, split, limit, image_size,
               image_channels);

// What the images of `data` depend on, in words: the members, and names, sizes
// and times of all files in data_dir, where it is there. Folders that may not
// be read are left out, and so are files of the cache (statistics_cache.h). The
// data sets of packages (no data_dir) are taken to stay as they are.
//
// Errors: FAILED_PRECONDITION, data_dir cannot be listed.
absl::StatusOr<std::string> DataIdentity(const FidData& data);

// Not thread-safe. Methods may throw what LibTorch throws.
class FidWorker {
 public:
  // Errors: those of FeatureExtractor::Create.
  absl::Status LoadExtractor(const ExtractorFile& file);

  // Takes the bytes of a generator's file. Errors: those of ParseGanModel,
  // beginning with `name`.
  absl::Status LoadGenerator(const std::string& bytes, const std::string& name);

  // DataIdentity on this machine.
  absl::StatusOr<std::string> Identity(const FidData& data) const;

  // How many real images there are, of data of which a small part costs no more
  // than its share: pictures, and unpacked files of cifar10. 0: any other data.
  // Errors: those of LoadImageDataset.
  absl::StatusOr<int64_t> CountUnpacked(const FidData& data) const;

  // The other methods return FAILED_PRECONDITION before both of the above.

  // Of a part of the real images, which is held in memory meanwhile; pictures
  // of an image-folder are not, but read by threads ahead of the extractor.
  // Errors: those of LoadImageDataset, and of the extractor.
  // INVALID_ARGUMENT, they have another shape than the generated ones.
  absl::StatusOr<FeatureStatistics> RealStatistics(const FidData& data,
                                                   int shard, int num_shards);

  // Of images [first, first + count) of the sequence that `seed` names (see
  // ImageGenerator), as pixels, as they are saved. None of them is kept.
  // Errors: INVALID_ARGUMENT, first < 0 or count < 1.
  absl::StatusOr<FeatureStatistics> GeneratedStatistics(uint64_t seed,
                                                        int64_t first,
                                                        int64_t count);

  // In this process: is told how many images of the running call are done, and
  // of how many.
  void set_on_progress(OnImages hook) { on_progress_ = std::move(hook); }

 private:
  absl::Status CheckLoaded() const;
  // Checks the shape of real images.
  absl::Status CheckShape(const ImageShape& shape,
                          const std::string& dataset) const;
  std::unique_ptr<FeatureExtractor> extractor_;
  std::unique_ptr<ImageGenerator> generator_;
  ImageShape shape_;  // Of generated images.
  OnImages on_progress_;
};
MINIRAY_ACTOR(FidWorker, Constructor<>, &FidWorker::LoadExtractor,
              &FidWorker::LoadGenerator, &FidWorker::Identity,
              &FidWorker::CountUnpacked, &FidWorker::RealStatistics,
              &FidWorker::GeneratedStatistics);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_METRICS_FID_WORKER_H_
