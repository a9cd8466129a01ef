// A call, as the typed API hands it to the client.

#ifndef MINIRAY_RUNTIME_CLIENT_CALL_REQUEST_H_
#define MINIRAY_RUNTIME_CLIENT_CALL_REQUEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "runtime/actor/registry.h"
#include "runtime/client/call_state.h"

namespace miniray {
namespace internal {

// Which actor; the address is looked up when needed.
struct ActorIdentity {
  std::string actor_id;
  std::string class_name;
  std::string name;
  // Defaults of its creator for calls; see ActorOptions.
  int max_retries = 0;
  int max_pending_calls = 0;
  int64_t max_pending_bytes = 0;

  // "Counter 'c'" or "Counter (actor-0123456789abcdef)".
  std::string ToString() const;
};

struct CallRequest {
  std::string method;
  ArgumentList args;
  // Arguments that are the results of these calls, by their index in `args`:
  // the call is not sent before they are done, and fails if one fails.
  std::vector<std::pair<size_t, std::shared_ptr<CallState>>> refs;
  // What else must live until the call is done.
  std::vector<std::shared_ptr<CallState>> holds;
  // How often it is sent again when the actor died before it replied; -1: for
  // ever.
  int max_retries = 0;
  std::string concurrency_group;
  bool keep_result = false;
  absl::Duration timeout = absl::InfiniteDuration();
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_CALL_REQUEST_H_
