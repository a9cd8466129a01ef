// The shared state of one call: what an ObjectRef points at.

#ifndef MINIRAY_RUNTIME_CLIENT_CALL_STATE_H_
#define MINIRAY_RUNTIME_CLIENT_CALL_STATE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"

namespace miniray {
namespace internal {

class CallState;

// What carries calls, as their states see it.
class CallOwner {
 public:
  virtual ~CallOwner() = default;
  // The caller wants the call no more; it ends as CANCELLED if it has not run.
  virtual void CancelCall(const CallState* call) = 0;
  // What the call waits for, e.g. "it was sent to node-1 12 s ago".
  virtual std::string DescribeCall(const CallState* call) = 0;
};

// A serialized Value.
struct FetchedValue {
  absl::Cord bytes;
  // It lies in memory that nobody else has: see AdoptionScope.
  bool own = false;
};

// Gets values that lie elsewhere.
class ObjectFetcher {
 public:
  virtual ~ObjectFetcher() = default;
  // The Value that the serialized Value `reference` refers to. alone: no other
  // process of this node is likely to want it, so that it need not be brought
  // to the node's store.
  virtual absl::StatusOr<FetchedValue> FetchObject(const absl::Cord& reference,
                                                   absl::Duration timeout,
                                                   bool alone) = 0;
};

// Whether this process fetches the large results of a method as soon as they
// are there, which makes the next one come with its reply; or leaves them, or
// passes them on. Learned from what it does.
struct FetchHabit {
  std::atomic<bool> fetches = false;
};

// Thread-safe.
class CallState {
 public:
  // `description` names the call in errors: "Counter.Add on actor 'c'".
  explicit CallState(std::string description)
      : description_(std::move(description)) {}
  ~CallState();

  // A call that failed before it left.
  static std::shared_ptr<CallState> Failed(std::string description,
                                           absl::Status status);

  // Sets the serialized result; the first one counts. `where`, if not empty, is
  // put into the message of an error: "node-1 on host-a". stayed, if not null:
  // the result is a reference to a value that lies elsewhere, though nobody had
  // asked for that; what becomes of it is learned there. process: see below.
  void Complete(absl::StatusOr<absl::Cord> result, absl::string_view where = "",
                std::shared_ptr<FetchHabit> stayed = nullptr,
                std::optional<int32_t> process = std::nullopt)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Set before the call is shared.
  void set_owner(std::weak_ptr<CallOwner> owner) { owner_ = std::move(owner); }

  // Set before the call is shared: its result refers to a value that lies
  // elsewhere, and is fetched with `fetcher`.
  void set_by_reference(std::weak_ptr<ObjectFetcher> fetcher) {
    by_reference_ = true;
    set_fetcher(std::move(fetcher));
  }
  // Set before the call is shared: by what a result that stayed is fetched.
  void set_fetcher(std::weak_ptr<ObjectFetcher> fetcher) {
    fetcher_ = std::move(fetcher);
  }
  // True if the result was asked to lie elsewhere.
  bool by_reference() const { return by_reference_; }
  // True if it does, asked for or not; the latter once the call is done.
  bool lies_elsewhere() const ABSL_LOCKS_EXCLUDED(mu_);

  // Set before the call is shared: by this habit, it asked for its result with
  // the reply.
  void set_asked_by(std::shared_ptr<FetchHabit> habit) {
    asked_by_ = std::move(habit);
  }

  // Keeps `hold` as long as the call itself.
  void Hold(std::shared_ptr<void> hold) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether the result refers to something that is gone without the call.
  bool holds() const ABSL_LOCKS_EXCLUDED(mu_);

  // As Wait, and fetches what lies elsewhere. last: nobody will ask again, so
  // that what is fetched need not be kept here.
  absl::StatusOr<FetchedValue> WaitAndFetch(absl::Duration timeout,
                                            bool last = false) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // See CallOwner; nothing happens to a call that is done.
  void Cancel() ABSL_LOCKS_EXCLUDED(mu_);

  // Blocks until the call is done. Errors: DEADLINE_EXCEEDED, or the call's.
  absl::StatusOr<absl::Cord> Wait(absl::Duration timeout) const
      ABSL_LOCKS_EXCLUDED(mu_);

  bool done() const ABSL_LOCKS_EXCLUDED(mu_);

  // Which of the actor's processes has answered, with a result or an error of
  // its own: how often the actor had been restarted before it. None if the call
  // is not done, or has failed on its way.
  std::optional<int32_t> process() const ABSL_LOCKS_EXCLUDED(mu_);

  // Runs `callback` once the call is done: now, or in the thread that completes
  // it; it must not block. Returns what Forget takes.
  uint64_t OnDone(std::function<void()> callback) ABSL_LOCKS_EXCLUDED(mu_);
  // The callback is not to run any more; it may run now.
  void Forget(uint64_t callback) ABSL_LOCKS_EXCLUDED(mu_);

  // What the owner keeps of the call. For the owner alone, under its lock.
  void set_owner_data(void* data) const { owner_data_ = data; }
  void* owner_data() const { return owner_data_; }

  const std::string& description() const { return description_; }

  // The message of a Get that timed out. `timeout` is only told.
  absl::Status TimedOut(absl::Duration timeout) const;

 private:
  const std::string description_;
  std::weak_ptr<CallOwner> owner_;
  mutable void* owner_data_ = nullptr;
  bool by_reference_ = false;
  std::weak_ptr<ObjectFetcher> fetcher_;
  std::shared_ptr<FetchHabit> asked_by_;
  mutable std::atomic<bool> wanted_ = false;  // Somebody asked for the result.
  mutable absl::Mutex mu_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::StatusOr<absl::Cord> result_ ABSL_GUARDED_BY(mu_);
  std::optional<int32_t> process_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<FetchHabit> stayed_ ABSL_GUARDED_BY(mu_);
  // What was fetched of a result that stayed.
  mutable absl::optional<absl::Cord> fetched_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<uint64_t, std::function<void()>>> callbacks_
      ABSL_GUARDED_BY(mu_);
  uint64_t next_callback_ ABSL_GUARDED_BY(mu_) = 1;
  std::shared_ptr<void> hold_ ABSL_GUARDED_BY(mu_);
};

// See Wait in runtime/api/object_ref.h. Null states count as done.
std::vector<size_t> WaitForCalls(
    const std::vector<std::shared_ptr<CallState>>& calls, size_t num_ready,
    absl::Duration timeout);

// Blocks until all are done or one failed; returns the first failure.
absl::Status WaitForAllOrFailure(
    const std::vector<std::shared_ptr<CallState>>& calls,
    absl::Duration timeout);

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_CALL_STATE_H_
