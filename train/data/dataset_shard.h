// DatasetShard: one rank's part of a Dataset, epoch after epoch, and the stream
// of its batches.
//
//   for (int64_t epoch = shard.epoch(); epoch < 10; ++epoch) {
//     for (train::Batch& batch :
//          shard.IterBatches({.batch_size = 64, .shuffle_buffer = 10000})) {
//       ...
//       if (...) files["data"] = shard.State();  // This batch is done.
//     }
//   }
//
// All ranks must use the same options; then they have equally many batches (but
// with Tail::kUneven), and each record comes once an epoch on one rank.
//
// Not thread-safe: a shard, its copies and its stream are one thread's. A
// stream keeps what it needs alive.

#ifndef MINIRAY_TRAIN_DATA_DATASET_SHARD_H_
#define MINIRAY_TRAIN_DATA_DATASET_SHARD_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "train/data/row.h"
#include "train/data/tail.h"

namespace miniray::train {

class BlockSource;

struct IterBatchesOptions {
  int64_t batch_size = 256;  // Records of a batch on each rank, from 1.
  // 0: records in the order of the files. Otherwise blocks come in an order
  // drawn for each epoch, and each record is drawn from the next
  // `shuffle_buffer` that were read and not drawn yet; that many rows are held
  // in memory.
  int64_t shuffle_buffer = 0;
  // Batches that a background thread reads ahead; 0: read when asked for.
  int prefetch = 2;
  // Leaves out a last batch of fewer than batch_size records.
  bool drop_last = false;
  Tail tail = Tail::kPad;
  uint64_t seed = 0;  // Of the shuffling; the same on all ranks.
  // Where batches are moved to (train/device.h). Empty: the shard's.
  std::string device;
};

// What a loop over a BatchStream throws.
class DatasetError : public std::runtime_error {
 public:
  explicit DatasetError(absl::Status status)
      : std::runtime_error(status.ToString()), status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// The batches of one epoch on one rank. Its end, by the last batch or by its
// destruction, is the epoch's. Memory: shuffle_buffer rows, prefetch + 1
// batches, and what the reader of one file takes. Movable.
class BatchStream {
 public:
  class Iterator;

  BatchStream(BatchStream&&) noexcept;
  BatchStream& operator=(BatchStream&&) = delete;
  // Ends the background thread; waits until the record that it reads is read.
  ~BatchStream();

  // Returns the next batch; nothing at the end of the epoch.
  //
  // Errors, which stay: what the reader says, with file and record;
  // INVALID_ARGUMENT, records that cannot be stacked, or options that cannot
  // be; DATA_LOSS, a file has fewer records than when the data set was made;
  // FAILED_PRECONDITION, another stream of this shard is not at its end, or
  // there is no such device.
  absl::StatusOr<std::optional<Batch>> Next();

  // The same as a range, once. Errors are thrown, as DatasetError.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  // Batches of this stream from its beginning, and of the rank's that has the
  // most: the same but with Tail::kUneven. 0 where options cannot be.
  int64_t steps() const;
  int64_t max_steps() const;

 private:
  friend class DatasetShard;
  struct Impl;
  explicit BatchStream(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

class DatasetShard {
 public:
  // rank: in [0, world_size), which is not checked: Dataset::Shard does.
  DatasetShard(std::shared_ptr<const BlockSource> source, int rank,
               int world_size);

  // Where batches are moved to unless IterBatchesOptions::device says
  // otherwise. Empty, as at the beginning: they stay on the CPU. In a train
  // function it is the rank's device.
  void set_device(std::string device);

  // Begins the next epoch, or goes on with one that Restore put in its middle.
  BatchStream IterBatches(const IterBatchesOptions& options = {});

  // Of the stream that runs, or of the next one.
  int64_t epoch() const;
  // The next stream is of `epoch`, from its start. Throws std::logic_error if
  // one runs, std::invalid_argument if epoch is below 0.
  void SetEpoch(int64_t epoch);

  // The place in the data, for a checkpoint: after the last batch that was
  // taken, whatever the thread has read ahead. One line of JSON, the same on
  // all ranks that have taken equally many batches. (With Tail::kUneven, after
  // another rank has run out, rank 0's is the right one.)
  std::string State() const;

  // Goes on from `state`. With the same world size, tail, shuffle_buffer and
  // seed the batches are those that would have come; where one has changed, the
  // records that no rank had taken are dealt anew.
  //
  // Errors: INVALID_ARGUMENT, no such state, or of a data set of another size.
  // FAILED_PRECONDITION, a stream runs.
  absl::Status Restore(absl::string_view state);

  int rank() const;
  int world_size() const;

 private:
  friend class BatchStream;
  struct Position;
  std::shared_ptr<Position> position_;  // Shared by copies and streams.
};

class BatchStream::Iterator {
 public:
  using iterator_concept = std::input_iterator_tag;
  using difference_type = std::ptrdiff_t;
  using value_type = Batch;

  Batch& operator*() { return *batch_; }
  Batch* operator->() { return &*batch_; }
  Iterator& operator++() {
    Advance();
    return *this;
  }
  void operator++(int) { Advance(); }
  friend bool operator==(const Iterator& it, std::default_sentinel_t) {
    return !it.batch_.has_value();
  }

 private:
  friend class BatchStream;
  explicit Iterator(BatchStream* stream) : stream_(stream) { Advance(); }
  void Advance();

  BatchStream* stream_;
  std::optional<Batch> batch_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_DATASET_SHARD_H_
