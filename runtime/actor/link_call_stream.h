// One caller's link to an actor process, and once it has said hello, the stream
// of its session. It stands for a gRPC stream of ActorService.Channel.

#ifndef MINIRAY_RUNTIME_ACTOR_LINK_CALL_STREAM_H_
#define MINIRAY_RUNTIME_ACTOR_LINK_CALL_STREAM_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/actor/call_session.h"
#include "runtime/actor/hosted_actor.h"
#include "runtime/actor/link_call_server.h"
#include "runtime/actor/link_places.h"
#include "runtime/base/files.h"
#include "runtime/link/frame_link.h"

namespace miniray {
namespace internal {

// Who has not shown the token by then is turned away.
inline constexpr absl::Duration kHelloTimeout = absl::Seconds(10);

// Thread-safe. Its link keeps it.
class LinkCallStream : public SessionStream,
                       public FrameLinkUser,
                       public std::enable_shared_from_this<LinkCallStream> {
 public:
  // places: one is taken while it is admitted. peer: who calls, for the log.
  LinkCallStream(std::shared_ptr<const LinkCallServer::Options> options,
                 std::shared_ptr<LinkPlaces> places, ScopedFd fd, CallPath path,
                 std::string peer);

  void Start();

  // Its caller has shown the token, and there was a place.
  bool admitted() const { return admitted_; }

  // SessionStream.
  bool Write(const absl::Cord& frame, bool at_once) override;
  void Read() override;
  void Finish(const absl::Status& status) override;
  void Cancel() override;
  CallPath path() const override { return path_; }

  // FrameLinkUser.
  void OnLinkFrame(uint32_t kind, const absl::Cord& bytes) override;
  void OnLinkWritten() override;
  void OnLinkEnded(const absl::Status& status) override;

 private:
  absl::Status Greet(const absl::Cord& bytes);
  void Refuse(absl::string_view why);

  const std::shared_ptr<const LinkCallServer::Options> options_;
  const std::shared_ptr<LinkPlaces> places_;
  const CallPath path_;
  const std::string peer_;
  const std::shared_ptr<FrameLink> link_;
  std::atomic<bool> admitted_ = false;
  std::atomic<bool> finished_ = false;
  bool refused_ = false;  // With a line in the log. The loop's thread.
  // Set in the loop's thread, before the session knows the stream.
  std::shared_ptr<HostedActor> actor_;
  std::shared_ptr<CallSession> session_;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_LINK_CALL_STREAM_H_
