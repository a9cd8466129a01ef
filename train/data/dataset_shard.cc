#include "train/data/dataset_shard.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "train/data/batch_producer.h"
#include "train/data/block_source.h"
#include "train/data/deal.h"
#include "train/data/record_stream.h"
#include "train/data/stream_state.h"
#include "train/device.h"

namespace miniray::train {
namespace {

absl::Status CheckOptions(const IterBatchesOptions& options) {
  if (options.batch_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch_size is ", options.batch_size, "; expected at least 1"));
  }
  if (options.shuffle_buffer < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shuffle_buffer is ", options.shuffle_buffer,
                     "; expected at least 0, which is not to shuffle"));
  }
  if (options.prefetch < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prefetch is ", options.prefetch, "; expected at least 0"));
  }
  return absl::OkStatus();
}

// Batches of `records`.
int64_t Steps(int64_t records, const IterBatchesOptions& options) {
  return records / options.batch_size +
         (!options.drop_last && records % options.batch_size > 0 ? 1 : 0);
}

}  // namespace

struct DatasetShard::Position {
  Position(std::shared_ptr<const BlockSource> s, int r, int w)
      : source(std::move(s)), rank(r), world_size(w) {
    state.num_records = source->size();
    state.num_blocks = static_cast<int64_t>(source->blocks().size());
  }

  void BeginEpoch(int64_t epoch) {
    state.epoch = epoch;
    state.deals.clear();
    running = false;
    complete = false;
  }

  const std::shared_ptr<const BlockSource> source;
  const int rank;
  const int world_size;
  std::string device;
  StreamState state;  // The last deal is the stream's, if one runs.
  bool running = false;
  bool complete = false;  // The stream has given its last batch.
};

struct BatchStream::Impl {
  std::shared_ptr<DatasetShard::Position> position;
  absl::Status status;                      // Not OK: of no use any more.
  std::optional<c10::Device> device;        // Where batches go.
  std::unique_ptr<BatchProducer> producer;  // None once the epoch has ended.
  int64_t steps = 0;
  int64_t max_steps = 0;
  int64_t steps_done = 0;

  void EndEpoch() {
    if (producer == nullptr) return;
    producer.reset();
    position->BeginEpoch(position->state.epoch + 1);
  }
};

BatchStream::BatchStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BatchStream::BatchStream(BatchStream&&) noexcept = default;
BatchStream::~BatchStream() {
  if (impl_ != nullptr) impl_->EndEpoch();
}

absl::StatusOr<std::optional<Batch>> BatchStream::Next() {
  MR_RETURN_IF_ERROR(impl_->status);
  if (impl_->steps_done == impl_->steps) {
    impl_->EndEpoch();
    return std::nullopt;
  }
  absl::StatusOr<Batch> batch = impl_->producer->Next();
  if (!batch.ok()) {
    impl_->status = batch.status();
    return impl_->status;
  }
  ++impl_->steps_done;
  impl_->position->state.deals.back().taken += batch->size();
  impl_->position->complete = impl_->steps_done == impl_->steps;
  if (impl_->device.has_value()) batch->MoveTo(*impl_->device);
  return *std::move(batch);
}

BatchStream::Iterator BatchStream::begin() { return Iterator(this); }
int64_t BatchStream::steps() const { return impl_->steps; }
int64_t BatchStream::max_steps() const { return impl_->max_steps; }

void BatchStream::Iterator::Advance() {
  absl::StatusOr<std::optional<Batch>> batch = stream_->Next();
  if (!batch.ok()) throw DatasetError(batch.status());
  batch_ = *std::move(batch);
}

DatasetShard::DatasetShard(std::shared_ptr<const BlockSource> source, int rank,
                           int world_size)
    : position_(
          std::make_shared<Position>(std::move(source), rank, world_size)) {}

void DatasetShard::set_device(std::string device) {
  position_->device = std::move(device);
}

BatchStream DatasetShard::IterBatches(const IterBatchesOptions& options) {
  auto impl = std::make_unique<BatchStream::Impl>();
  impl->position = position_;
  impl->status = CheckOptions(options);
  const std::string& device =
      options.device.empty() ? position_->device : options.device;
  if (impl->status.ok() && !device.empty()) {
    absl::StatusOr<c10::Device> chosen = ChooseDevice(device);
    impl->status = chosen.status();
    if (chosen.ok()) impl->device = *chosen;
  }
  if (position_->running) {
    impl->status = absl::FailedPreconditionError(
        "another stream of this shard is not at its end: destroy it first, or "
        "make another shard for a loop within its loop");
  }
  if (!impl->status.ok()) return BatchStream(std::move(impl));

  // What was restored goes on if it was dealt as it would be now.
  const Deal deal = {.world_size = position_->world_size,
                     .tail = options.tail,
                     .shuffle_buffer = options.shuffle_buffer,
                     .seed = options.seed};
  std::vector<DealState>& deals = position_->state.deals;
  if (deals.empty() || deals.back().deal != deal) {
    deals.push_back({.deal = deal});
  }
  position_->running = true;

  EpochPlan plan = PlanEpoch(position_->state);
  const int64_t count = plan.places.size();
  const auto left_on = [&](int rank) {
    const int64_t size = RangeOfRank(count, rank, plan.deal).size();
    return size - std::min(plan.taken, size);
  };
  const int64_t records = left_on(position_->rank);
  impl->steps = Steps(records, options);
  impl->max_steps = Steps(left_on(0), options);
  position_->complete = impl->steps == 0;
  impl->producer = std::make_unique<BatchProducer>(
      position_->source->columns(),
      RecordStream(PlaceReader(position_->source, std::move(plan.block_order)),
                   std::move(plan.places), position_->rank, plan.deal,
                   plan.taken),
      records, impl->steps, options.batch_size, options.prefetch);
  return BatchStream(std::move(impl));
}

int64_t DatasetShard::epoch() const { return position_->state.epoch; }
int DatasetShard::rank() const { return position_->rank; }
int DatasetShard::world_size() const { return position_->world_size; }

void DatasetShard::SetEpoch(int64_t epoch) {
  if (position_->running) {
    throw std::logic_error(
        "SetEpoch was called while a stream of the shard runs; destroy that "
        "first");
  }
  if (epoch < 0) {
    throw std::invalid_argument(
        absl::StrCat("epoch is ", epoch, "; expected at least 0"));
  }
  position_->BeginEpoch(epoch);
}

std::string DatasetShard::State() const {
  StreamState state = position_->state;
  if (position_->complete) {
    ++state.epoch;
    state.deals.clear();
  }
  return EncodeStreamState(state);
}

absl::Status DatasetShard::Restore(absl::string_view text) {
  if (position_->running) {
    return absl::FailedPreconditionError(
        "Restore was called while a stream of the shard runs; destroy that "
        "first");
  }
  MR_ASSIGN_OR_RETURN(StreamState state, DecodeStreamState(text));
  const StreamState& own = position_->state;
  if (state.num_records != own.num_records ||
      state.num_blocks != own.num_blocks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the state is of a data set of ", state.num_records, " records in ",
        state.num_blocks, " blocks, and this one has ", own.num_records, " in ",
        own.num_blocks,
        ": the data has changed since the checkpoint was taken, or it is "
        "another's, or is cut into blocks of another size"));
  }
  position_->BeginEpoch(state.epoch);
  position_->state = std::move(state);
  return absl::OkStatus();
}

}  // namespace miniray::train
