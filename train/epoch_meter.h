// How far a worker is in an epoch, and the means of what it measures there.
//
//   meter_.Begin(epoch, num_samples);
//   for (...) {
//     ... trains on a batch
//     meter_.Average(batch_size, {{"loss", loss}});
//     meter_.Advance(batch_size);
//   }
//   return meter_.Finish();
//
// A worker with `Progress GetProgress() const { return meter_.Now(); }` in its
// MINIRAY_ACTOR can be asked while it trains (optional_methods.h).

#ifndef MINIRAY_TRAIN_EPOCH_METER_H_
#define MINIRAY_TRAIN_EPOCH_METER_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/wire/codec.h"
#include "train/metrics.h"

namespace miniray::train {

struct Progress {
  int epoch = -1;            // -1: none has begun.
  int64_t samples_done = 0;  // Of the epoch.
  int64_t samples = 0;       // In the epoch; 0: not known.
  double seconds = 0;        // Since the epoch began, or which it took.
  bool done = false;         // The epoch has ended.
  Metrics metrics;           // Means so far.

  double samples_per_second() const {
    return seconds > 0 ? static_cast<double>(samples_done) / seconds : 0;
  }
};
MINIRAY_STRUCT(Progress, epoch, samples_done, samples, seconds, done, metrics);

// Thread-safe.
class EpochMeter {
 public:
  // Forgets the epoch before. samples: that the epoch will have, if known.
  void Begin(int epoch, int64_t samples = 0);

  // Takes the means of `metrics` over so many samples into those of the epoch:
  // the epoch's is the sum of samples * value over the sum of samples, in
  // double and in the order of the calls. Equal numbers of samples give the
  // plain mean, to the last bit.
  //
  // samples: >= 1.
  void Average(int64_t samples, const Metrics& metrics);

  // Replaces metrics whose means are worked out elsewhere.
  void Set(const Metrics& metrics);

  // So many more samples are done.
  void Advance(int64_t samples);

  Progress Now() const;

  // Ends the epoch. Returns the means, and "samples" done.
  Metrics Finish();

 private:
  struct Mean {
    double sum = 0;
    double weight = 0;
    int64_t unit = 1;  // Samples of the first call, which has weight 1.
  };

  Metrics Means() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  Progress progress_ ABSL_GUARDED_BY(mutex_);  // Without its metrics.
  std::map<std::string, Mean> means_ ABSL_GUARDED_BY(mutex_);
  absl::Time start_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_EPOCH_METER_H_
