#include "train/data/record_stream.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

#include "runtime/base/status_macros.h"

namespace miniray::train {

PlaceReader::PlaceReader(std::shared_ptr<const BlockSource> source,
                         std::vector<int64_t> block_order)
    : source_(std::move(source)), block_order_(std::move(block_order)) {
  ends_.reserve(block_order_.size());
  int64_t end = 0;
  for (const int64_t block : block_order_) {
    end += source_->blocks()[static_cast<size_t>(block)].records;
    ends_.push_back(end);
  }
}

absl::StatusOr<Row> PlaceReader::Read(int64_t place) {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), place);
  const auto which = static_cast<size_t>(end - ends_.begin());
  const SourceBlock& block =
      source_->blocks()[static_cast<size_t>(block_order_[which])];
  const int64_t record = block.records - (*end - place);
  absl::StatusOr<std::optional<Row>> row;
  try {
    row = ReadInBlock(block, record);
  } catch (const std::exception& e) {
    row = absl::InternalError(e.what());
  } catch (...) {
    row = absl::InternalError(
        "the reader threw something that is no std::exception");
  }
  if (row.ok() && !row->has_value()) {
    row = absl::DataLossError(
        "the file ends before this record, which it had when the data set was "
        "made: make the data set anew");
  }
  if (!row.ok()) {
    reader_.reset();
    open_block_ = nullptr;
    return Annotate(row.status(), source_->Describe(block, record));
  }
  return **std::move(row);
}

absl::StatusOr<std::optional<Row>> PlaceReader::ReadInBlock(
    const SourceBlock& block, int64_t record) {
  if (open_block_ != &block || record < next_record_) {
    // Not two open files at a time.
    reader_.reset();
    open_block_ = nullptr;
    MR_ASSIGN_OR_RETURN(reader_, source_->Open(block));
    open_block_ = &block;
    next_record_ = 0;
  }
  if (record > next_record_) {
    MR_RETURN_IF_ERROR(reader_->Skip(record - next_record_));
  }
  next_record_ = record + 1;
  return reader_->Next();
}

RecordStream::RecordStream(PlaceReader reader, Places places, int rank,
                           const Deal& deal, int64_t taken)
    : reader_(std::move(reader)),
      places_(std::move(places)),
      order_(places_.size(), rank, deal),
      to_skip_(std::min(taken, order_.remaining())) {}

absl::StatusOr<Row> RecordStream::Read(int64_t number) {
  return reader_.Read(places_[number % places_.size()]);
}

absl::Status RecordStream::Fill(const std::atomic<bool>& stop) {
  for (; to_skip_ > 0; --to_skip_) {
    if (stop) return absl::CancelledError("the stream was destroyed");
    order_.Next();
  }
  // In the order of the files.
  std::vector<size_t> slots(order_.buffer().size());
  std::iota(slots.begin(), slots.end(), 0);
  std::sort(slots.begin(), slots.end(), [&](size_t a, size_t b) {
    return order_.buffer()[a] < order_.buffer()[b];
  });
  rows_.resize(slots.size());
  for (const size_t slot : slots) {
    if (stop) return absl::CancelledError("the stream was destroyed");
    MR_ASSIGN_OR_RETURN(rows_[slot], Read(order_.buffer()[slot]));
  }
  filled_ = true;
  return absl::OkStatus();
}

absl::StatusOr<Row> RecordStream::Next(const std::atomic<bool>& stop) {
  if (!filled_) MR_RETURN_IF_ERROR(Fill(stop));
  if (stop) return absl::CancelledError("the stream was destroyed");
  if (last_.refill >= 0) {
    MR_ASSIGN_OR_RETURN(rows_[last_.slot], Read(last_.refill));
  }
  last_ = order_.Next();
  Row row = std::move(rows_[last_.slot]);
  if (last_.refill < 0) {
    // It would be a self-move for the last one, which goes with the pop.
    if (last_.slot + 1 < rows_.size()) {
      rows_[last_.slot] = std::move(rows_.back());
    }
    rows_.pop_back();
  }
  return row;
}

}  // namespace miniray::train
