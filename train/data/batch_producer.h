// Makes batches out of a stream of records, ahead of who takes them. Not for
// users.

#ifndef MINIRAY_TRAIN_DATA_BATCH_PRODUCER_H_
#define MINIRAY_TRAIN_DATA_BATCH_PRODUCER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "train/data/record_stream.h"
#include "train/data/row.h"

namespace miniray::train {

// One thread makes one and calls Next(); with prefetch, another fills the
// queue.
class BatchProducer {
 public:
  // Makes `steps` batches of `records` records, of batch_size but for the last.
  BatchProducer(ColumnNames columns, RecordStream stream, int64_t records,
                int64_t steps, int64_t batch_size, int prefetch);
  // Waits until the record that is being read is read.
  ~BatchProducer();

  // Returns the next batch, of which there must be one. Not after an error.
  absl::StatusOr<Batch> Next() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::StatusOr<Batch> Make();
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  bool HasRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return stop_ || ready_.size() < prefetch_;
  }
  bool HasBatch() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return !ready_.empty();
  }

  const ColumnNames columns_;
  const int64_t steps_;
  const int64_t batch_size_;
  const size_t prefetch_;
  // The thread's, if there is one.
  RecordStream stream_;
  int64_t records_;  // That are still to come.

  std::atomic<bool> stop_ = false;
  absl::Mutex mu_;
  std::deque<absl::StatusOr<Batch>> ready_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_BATCH_PRODUCER_H_
