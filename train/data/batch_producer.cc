#include "train/data/batch_producer.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {

BatchProducer::BatchProducer(ColumnNames columns, RecordStream stream,
                             int64_t records, int64_t steps, int64_t batch_size,
                             int prefetch)
    : columns_(std::move(columns)),
      steps_(steps),
      batch_size_(batch_size),
      prefetch_(static_cast<size_t>(prefetch)),
      stream_(std::move(stream)),
      records_(records) {
  if (prefetch_ > 0 && steps_ > 0) thread_ = std::thread([this] { Run(); });
}

BatchProducer::~BatchProducer() {
  {
    const absl::MutexLock lock(&mu_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<Batch> BatchProducer::Next() {
  if (prefetch_ == 0) return Make();
  const absl::MutexLock lock(&mu_);
  mu_.Await(absl::Condition(this, &BatchProducer::HasBatch));
  absl::StatusOr<Batch> batch = std::move(ready_.front());
  ready_.pop_front();
  return batch;
}

absl::StatusOr<Batch> BatchProducer::Make() {
  const int64_t size = std::min(batch_size_, records_);
  std::vector<Row> rows;
  for (int64_t i = 0; i < size; ++i) {
    MR_ASSIGN_OR_RETURN(Row row, stream_.Next(stop_));
    rows.push_back(std::move(row));
  }
  records_ -= size;
  try {
    return StackRows(columns_, rows);
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  } catch (...) {
    return absl::InternalError("what is thrown is no std::exception");
  }
}

void BatchProducer::Run() {
  for (int64_t i = 0; i < steps_; ++i) {
    absl::StatusOr<Batch> batch = Make();
    const bool failed = !batch.ok();
    const absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(this, &BatchProducer::HasRoom));
    if (stop_) return;
    ready_.push_back(std::move(batch));
    if (failed) return;
  }
}

}  // namespace miniray::train
