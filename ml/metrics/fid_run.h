// One run of the `fid` program: how far generated images are from real ones.

#ifndef MINIRAY_ML_METRICS_FID_RUN_H_
#define MINIRAY_ML_METRICS_FID_RUN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ml/cli/progress_bar.h"
#include "ml/gan/model_file.h"
#include "ml/metrics/feature_extractor.h"
#include "ml/metrics/fid_evaluation.h"
#include "ml/metrics/fid_worker.h"
#include "runtime/api/miniray.h"

namespace miniray::ml {

struct FidRunOptions {
  FidData data;
  ExtractorFile extractor;
  int64_t count = 10000;  // Of generated images, at least 2.
  uint64_t seed = 1;
  std::string cache_dir;  // Of the real images' statistics; empty: none.

  // On a cluster, by this many workers; else in this process.
  std::optional<Cluster> cluster;
  int workers = 1;
  double cpus_per_worker = 1;
  absl::Duration start_timeout = absl::Seconds(60);
};

// Compares the images of a generator with those of a data set.
//
// On a cluster workers take parts of the real images, and pieces of the
// generated ones, when they are free; the work of one that dies goes to the
// others. But for rounding, the result does not depend on how many there are.
//
// Statistics of real images are kept in cache_dir, by all that they depend on.
// A file of it that is damaged, or cannot be written, or a folder of data that
// cannot be listed, is worth a line, and no error.
//
// Errors: those of the extractor, the generator and the data; INVALID_ARGUMENT,
// the extractor takes no images of the generator's shape, or a cluster without
// workers; UNAVAILABLE when no worker is left.
absl::StatusOr<FidResult> RunFid(const GanModel& model,
                                 const FidRunOptions& options,
                                 ProgressBar* bar);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_METRICS_FID_RUN_H_
