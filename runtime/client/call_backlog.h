// The calls to one actor that are still to be sent. Those of one concurrency
// group are sent in their order; groups do not wait for each other.

#ifndef MINIRAY_RUNTIME_CLIENT_CALL_BACKLOG_H_
#define MINIRAY_RUNTIME_CLIENT_CALL_BACKLOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/cord.h"
#include "absl/time/time.h"
#include "runtime/client/call_state.h"
#include "runtime/wire/call_messages.h"

namespace miniray {
namespace internal {

// A call that waits for its arguments.
struct CallDraft {
  CallMessage message;
  std::vector<std::pair<size_t, std::shared_ptr<CallState>>> refs;
};

struct PendingCall {
  std::shared_ptr<CallState> state;  // Null: it was sent, and its time is over.
  std::string method;
  std::string group;                 // Empty: the method's own.
  std::unique_ptr<CallDraft> draft;  // Null once `body` is complete.
  absl::Cord body;
  std::vector<std::shared_ptr<CallState>> holds;
  int retries_left = 0;
  bool patient = false;  // Waits while the actor restarts.
  bool keeps_result = false;
  bool cancelled = false;
  bool reply_lost = false;  // It came once, and its result was gone.
  uint64_t id = 0;          // In the session; 0: not sent.
  absl::Time sent = absl::InfiniteFuture();
  absl::Duration timeout = absl::InfiniteDuration();  // As the caller said.
  absl::Time deadline = absl::InfiniteFuture();

 private:
  friend class CallBacklog;
  uint64_t order_ = 0;
  size_t lane_ = 0;
  bool removed_ = false;
};

// Not thread-safe.
class CallBacklog {
 public:
  // So many calls, and so many bytes of them, of one group may be with the
  // actor without a reply; one call may be larger. What is beyond waits here,
  // where it can be cancelled, and keeps nobody else from being sent.
  static constexpr size_t kMaxSentCalls = 4096;
  static constexpr uint64_t kMaxSentBytes = uint64_t{128} << 20;

  CallBacklog() : lanes_(1) {}

  // Which methods have a group of their own. Known once the actor answers.
  void SetGroups(std::map<std::string, std::string, std::less<>> of_method);

  // Puts a call behind all others.
  void Add(std::unique_ptr<PendingCall> call);
  // Puts a call that was sent back to where it was.
  void Return(std::unique_ptr<PendingCall> call);

  // The call that is to be sent next; null if none may be.
  PendingCall* Next();
  // Takes out what Next returned; it counts as sent until Done or Return.
  std::unique_ptr<PendingCall> TakeNext();
  void Done(const PendingCall& call);

  // Takes out a call that is not to be sent.
  std::unique_ptr<PendingCall> Remove(PendingCall* call);
  // Takes out those for which `which` holds, in their order.
  std::vector<std::unique_ptr<PendingCall>> RemoveIf(
      absl::FunctionRef<bool(const PendingCall&)> which);

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  struct Lane {
    // Removed ones stay, empty, until they are at the front.
    std::deque<std::unique_ptr<PendingCall>> calls;
    size_t sent_calls = 0;
    uint64_t sent_bytes = 0;
  };

  size_t LaneOf(const PendingCall& call);
  // The lane whose first call may be sent and is the oldest; null: none.
  Lane* NextLane();

  std::deque<Lane> lanes_;  // The first is that of calls without a group.
  std::map<std::string, size_t, std::less<>> lane_of_group_;
  std::map<std::string, std::string, std::less<>> group_of_method_;
  uint64_t next_order_ = 1;
  size_t size_ = 0;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_CALL_BACKLOG_H_
