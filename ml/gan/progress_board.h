// How far the workers of a distributed run are within an epoch.
//
// A worker's methods run one at a time, so nobody can ask it while it trains.
// It tells this actor instead, without waiting, and the driver asks here.

#ifndef MINIRAY_ML_GAN_PROGRESS_BOARD_H_
#define MINIRAY_ML_GAN_PROGRESS_BOARD_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/types/span.h"
#include "runtime/api/miniray.h"

namespace miniray::ml {

// A worker in the middle of an epoch.
struct BatchProgress {
  int worker_id = 0;
  int epoch = 0;
  int64_t batches_done = 0;
  int64_t batches = 0;  // In the epoch.
  int64_t images = 0;   // Trained on since the epoch began, ...
  double seconds = 0;   // ... in this time.
  double g_loss = 0;    // Means since the epoch began.
  double d_loss = 0;
};
MINIRAY_STRUCT(BatchProgress, worker_id, epoch, batches_done, batches, images,
               seconds, g_loss, d_loss);

class ProgressBoard {
 public:
  // Replaces what is known of the worker.
  void Report(const BatchProgress& progress) {
    latest_[progress.worker_id] = progress;
  }

  // Returns the last report of each worker that made one.
  std::vector<BatchProgress> Latest() const;

 private:
  std::map<int, BatchProgress> latest_;
};
MINIRAY_ACTOR(ProgressBoard, Constructor<>, &ProgressBoard::Report,
              &ProgressBoard::Latest);

// Several workers as one.
struct TotalProgress {
  double fraction = 0;  // Of the epoch's batches.
  double images_per_sec = 0;
  double g_loss = 0;  // Means over the workers that have begun.
  double d_loss = 0;
};

// Adds up the reports on `epoch`; a worker whose last report is of an earlier
// one has done nothing yet.
TotalProgress AddUp(absl::Span<const BatchProgress> reports, int epoch,
                    int num_workers);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_PROGRESS_BOARD_H_
