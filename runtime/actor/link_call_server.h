// The links of an actor process: calls from other processes of the machine
// through a unix socket, and from anywhere through TCP. They carry the same
// sessions as ActorService.Channel.

#ifndef MINIRAY_RUNTIME_ACTOR_LINK_CALL_SERVER_H_
#define MINIRAY_RUNTIME_ACTOR_LINK_CALL_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/actor/call_session.h"
#include "runtime/actor/hosted_actor.h"
#include "runtime/base/files.h"

namespace miniray {
namespace internal {

// What a stream says of itself before its first frame. Looks up a key of
// rpc/channel.h; empty: the stream does not say.
using StreamMetadata = std::function<std::string(const char* key)>;

// Makes the stream that will carry `session`.
using MakeSessionStream = std::function<std::shared_ptr<SessionStream>(
    std::shared_ptr<HostedActor> actor, std::shared_ptr<CallSession> session)>;

// Finds the actor and the session that a new stream is for, and attaches it.
// Errors: for the caller.
using AttachStream = std::function<absl::Status(const StreamMetadata& metadata,
                                                const MakeSessionStream& make)>;

// Thread-safe.
class LinkCallServer {
 public:
  struct Options {
    std::string address;  // HOST:PORT of the process.
    std::string token;
    AttachStream attach;
  };
  // Takes over a connection that speaks gRPC. Called in a loop's thread: must
  // not block.
  using PassOn = std::function<void(ScopedFd fd)>;

  // Serves at the unix socket of the address. Errors: see ListenUnix.
  static absl::StatusOr<std::unique_ptr<LinkCallServer>> StartUnix(
      Options options);
  // Serves at `listener`, a TCP socket. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<LinkCallServer>> StartTcp(
      Options options, ScopedFd listener, PassOn pass_on);
  // Ends the streams; `attach` may run a little longer, `pass_on` does not.
  virtual ~LinkCallServer() = default;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_LINK_CALL_SERVER_H_
