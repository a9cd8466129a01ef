// Tells the head of a training, beside it: nothing that trains waits.

#ifndef MINIRAY_RUNTIME_RUNS_RUN_REPORTER_H_
#define MINIRAY_RUNTIME_RUNS_RUN_REPORTER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "proto/run.grpc.pb.h"
#include "proto/run.pb.h"
#include "runtime/base/backoff.h"
#include "runtime/rpc/redialler.h"

namespace miniray {

// Takes events into a queue, and sends what is there a few times a second, from
// a thread and over a connection of its own. While the head is away the queue
// grows to its limits; then the oldest points go first (they are what there is
// most of), then the oldest of all else, and the head is told how many: never
// the beginning or the end of a run.
//
// Thread-safe.
class RunReporter {
 public:
  struct Options {
    std::string head_address;  // HOST:PORT.
    std::string token;
    std::string run_id;  // See CheckRunId.
    // What may wait, with what is on its way.
    size_t max_events = 20000;
    size_t max_bytes = size_t{8} << 20;
    absl::Duration period = absl::Milliseconds(200);  // From batch to batch.
    // Without anything to send: a sign of life, whose answer may be a stop.
    absl::Duration idle_period = absl::Seconds(1);
    absl::Duration call_timeout = absl::Seconds(5);
    // Called about every poll_period in the reporter's thread, which waits for
    // it: to gather what is to be reported. May be null.
    std::function<void()> poll;
    absl::Duration poll_period = absl::Seconds(1);
  };

  struct Counts {
    int64_t reported = 0;   // By calls of Report.
    int64_t delivered = 0;  // The head has them.
    int64_t dropped = 0;    // It never will.
    size_t waiting = 0;     // Neither yet.
    size_t waiting_bytes = 0;
  };

  // Does not wait for the head. Errors: INVALID_ARGUMENT, not an address, or
  // not a run id.
  static absl::StatusOr<std::unique_ptr<RunReporter>> Start(Options options);

  // What is left in the queue is not sent: see Flush. Waits for a `poll` that
  // runs, and at most a quarter of a second else.
  ~RunReporter();
  RunReporter(const RunReporter&) = delete;
  RunReporter& operator=(const RunReporter&) = delete;

  // Never waits for the head. Sets unix_us if it is 0. What the head would
  // refuse (CheckRunEvent) is dropped, with a line in the log for the first.
  void Report(v1::RunEvent event) ABSL_LOCKS_EXCLUDED(mu_);

  // The head asks the run to end; stays true.
  bool stop_requested() const { return stop_requested_; }

  // Waits until all is sent, at most `timeout`, and no longer than half a
  // second while the head is away. Returns whether it is.
  bool Flush(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);

  Counts counts() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Waiting {
    v1::RunEvent event;
    size_t bytes = 0;
  };

  explicit RunReporter(Options options);

  void Loop();
  // Sends batches until nothing is left or one fails.
  void SendAll();
  // Whether there is anything to send: a sign of life is a batch without
  // events.
  bool HasBatch() const ABSL_LOCKS_EXCLUDED(mu_);
  // Sets in_flight_ to the next one.
  void TakeBatch() ABSL_LOCKS_EXCLUDED(mu_);
  // Of in_flight_.
  absl::Status Deliver();
  void Delivered() ABSL_LOCKS_EXCLUDED(mu_);
  // False: in_flight_ is to be tried again later.
  bool Failed(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void WarnOnce(const std::string& what, bool* warned);

  // Until the queue is within its limits.
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // False if there is none of them.
  bool DropOldest(std::deque<int64_t>* kind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool is_empty() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return queue_.empty() && in_flight_events_ == 0;
  }
  // Conditions.
  bool Hurries() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return closing_ || (num_flushing_ > 0 && !is_empty());
  }
  bool Settled() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return is_empty() || refused_;
  }

  const Options options_;
  const std::string reporter_id_;
  const std::shared_ptr<grpc::Channel> channel_;
  Redialler redialler_;
  const std::unique_ptr<v1::RunCollector::Stub> stub_;
  std::atomic<bool> stop_requested_ = false;

  // Of thread_.
  v1::ReportRunRequest in_flight_;  // Not delivered yet, if has_batch_.
  bool has_batch_ = false;
  Backoff backoff_;
  absl::Time next_try_ = absl::InfinitePast();
  absl::Time next_sign_of_life_ = absl::InfinitePast();
  bool warned_of_refusal_ = false;
  bool warned_of_loss_ = false;

  mutable absl::Mutex mu_;
  std::map<int64_t, Waiting> queue_ ABSL_GUARDED_BY(mu_);  // By number.
  size_t queue_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  // Numbers of those in the queue that may be dropped, by increasing number;
  // and of some that have been sent.
  std::deque<int64_t> points_ ABSL_GUARDED_BY(mu_);
  std::deque<int64_t> others_ ABSL_GUARDED_BY(mu_);
  size_t in_flight_events_ ABSL_GUARDED_BY(mu_) = 0;
  size_t in_flight_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t next_sequence_ ABSL_GUARDED_BY(mu_) = 1;
  int64_t delivered_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;
  bool warned_of_event_ ABSL_GUARDED_BY(mu_) = false;
  bool away_ ABSL_GUARDED_BY(mu_) = false;     // The head does not answer.
  bool refused_ ABSL_GUARDED_BY(mu_) = false;  // It does not want to hear.
  int num_flushing_ ABSL_GUARDED_BY(mu_) = 0;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mu_) = nullptr;  // That runs.

  std::thread thread_;  // Last: it uses the others.
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RUNS_RUN_REPORTER_H_
