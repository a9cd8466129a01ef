#include <atomic>
#include <memory>
#include <utility>

#include "runtime/base/version.h"
#include "runtime/client/actor_stream.h"
#include "runtime/link/frame_link.h"
#include "runtime/link/link_call.h"
#include "runtime/link/unix_socket.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace internal {
namespace {

class LinkActorStream : public ActorStream, public FrameLinkUser {
 public:
  LinkActorStream(std::shared_ptr<ActorStreamUser> user, ScopedFd fd)
      : user_(std::move(user)),
        link_(std::make_shared<FrameLink>(
            std::move(fd), FrameLink::Side::kCaller, kMaxMessageBytes)) {}

  FrameLink* link() const { return link_.get(); }

  // ActorStream.
  bool writable() const override { return !writing_; }
  void Write(const absl::Cord& frame, bool at_once) override {
    // First: the loop may be done with it before Write returns.
    writing_ = true;
    if (link_->Write(kLinkFrame, frame, at_once)) writing_ = false;
  }
  void Read() override { link_->Read(); }
  void Cancel() override { link_->Cancel(absl::CancelledError("cancelled")); }

  // FrameLinkUser.
  void OnLinkFrame(uint32_t kind, const absl::Cord& bytes) override {
    if (kind == kLinkFrame) return user_->OnFrame(this, bytes);
    v1::Status status;
    if (kind != kLinkEnd || !status.ParseFromString(std::string(bytes))) {
      return link_->Cancel(absl::InternalError("a malformed message"));
    }
    link_->Cancel(FromProto(status));
  }
  void OnLinkWritten() override {
    writing_ = false;
    user_->OnWritable(this);
  }
  void OnLinkEnded(const absl::Status& status) override {
    user_->OnStreamEnded(this, status);
  }

 private:
  const std::shared_ptr<ActorStreamUser> user_;
  const std::shared_ptr<FrameLink> link_;
  std::atomic<bool> writing_ = false;
};

}  // namespace

std::shared_ptr<ActorStream> StartLinkActorStream(
    std::shared_ptr<ActorStreamUser> user, const std::string& address,
    const std::string& token, const ActorStream::Metadata& metadata) {
  ScopedFd fd = DialUnix(address);
  if (!fd.valid()) return nullptr;
  auto stream =
      std::make_shared<LinkActorStream>(std::move(user), std::move(fd));
  if (!stream->link()->Start(stream)) return nullptr;
  LinkHello hello(metadata.begin(), metadata.end());
  hello.emplace(kVersionKey, kVersion);
  if (!token.empty()) hello.emplace(kTokenKey, token);
  stream->link()->Write(kLinkHello, EncodeLinkHello(hello),
                        /*at_once=*/true);
  stream->link()->Read();
  return stream;
}

}  // namespace internal
}  // namespace miniray
