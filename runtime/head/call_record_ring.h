// The calls that finished last, for the timeline.

#ifndef MINIRAY_RUNTIME_HEAD_CALL_RECORD_RING_H_
#define MINIRAY_RUNTIME_HEAD_CALL_RECORD_RING_H_

#include <cstdint>
#include <deque>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/head.pb.h"

namespace miniray {

// Thread-safe.
class CallRecordRing {
 public:
  // Some 300 bytes each.
  explicit CallRecordRing(size_t capacity = 100000) : capacity_(capacity) {}

  // From the daemon of `node_id`. The oldest records make room.
  void Add(const std::string& node_id, v1::CallRecords records) {
    absl::MutexLock lock(&mu_);
    dropped_ += records.dropped();
    for (v1::CallRecord& record : *records.mutable_records()) {
      record.set_node_id(node_id);
      records_.push_back(std::move(record));
      if (records_.size() > capacity_) {
        records_.pop_front();
        ++dropped_;
      }
    }
  }

  // Those of a job, or all where it is empty. `dropped` counts those of all
  // jobs.
  v1::GetCallRecordsResponse Get(const std::string& job_id) const {
    absl::MutexLock lock(&mu_);
    v1::GetCallRecordsResponse response;
    response.set_dropped(dropped_);
    for (const v1::CallRecord& record : records_) {
      if (job_id.empty() || record.job_id() == job_id) {
        *response.add_records() = record;
      }
    }
    return response;
  }

 private:
  const size_t capacity_;
  mutable absl::Mutex mu_;
  std::deque<v1::CallRecord> records_ ABSL_GUARDED_BY(mu_);
  int64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_CALL_RECORD_RING_H_
