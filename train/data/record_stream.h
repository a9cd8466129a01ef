// One rank's records of an epoch, in the order in which it takes them. Not for
// users.

#ifndef MINIRAY_TRAIN_DATA_RECORD_STREAM_H_
#define MINIRAY_TRAIN_DATA_RECORD_STREAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/data/block_source.h"
#include "train/data/deal.h"

namespace miniray::train {

// Reads the record at a place of the epoch's order of blocks: cheaply where
// places ascend. Not thread-safe.
class PlaceReader {
 public:
  // block_order: a permutation of the source's blocks.
  PlaceReader(std::shared_ptr<const BlockSource> source,
              std::vector<int64_t> block_order);

  // place: in [0, source's size). Errors: the reader's, with file and record;
  // DATA_LOSS, a block is shorter than it was.
  absl::StatusOr<Row> Read(int64_t place);

 private:
  absl::StatusOr<std::optional<Row>> ReadInBlock(const SourceBlock& block,
                                                 int64_t record);

  std::shared_ptr<const BlockSource> source_;
  std::vector<int64_t> block_order_;
  std::vector<int64_t> ends_;  // The place after the i-th block in order.
  std::unique_ptr<RecordReader> reader_;
  const SourceBlock* open_block_ = nullptr;  // What reader_ reads.
  int64_t next_record_ = 0;  // Of the block, that reader_ gives.
};

class RecordStream {
 public:
  // What is `rank`'s of `places`, but for the first `taken`, which are not
  // read.
  RecordStream(PlaceReader reader, Places places, int rank, const Deal& deal,
               int64_t taken);

  // Returns the next row, of which there must be one. Errors: PlaceReader's,
  // which leave the stream useless; CANCELLED, `stop` is set.
  absl::StatusOr<Row> Next(const std::atomic<bool>& stop);

 private:
  absl::StatusOr<Row> Read(int64_t number);
  absl::Status Fill(const std::atomic<bool>& stop);

  PlaceReader reader_;
  Places places_;
  RankOrder order_;
  int64_t to_skip_;
  bool filled_ = false;
  std::vector<Row> rows_;  // Of the numbers in order_.buffer(), but for
  // what the last step has put there: that is read when the next one needs it,
  // so that an error does not spoil a batch that lies before it.
  RankOrder::Step last_ = {.slot = 0, .refill = -1};
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_RECORD_STREAM_H_
