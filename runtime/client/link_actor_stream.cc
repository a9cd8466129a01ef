#include <atomic>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/background.h"
#include "runtime/base/version.h"
#include "runtime/client/actor_stream.h"
#include "runtime/link/frame_link.h"
#include "runtime/link/link_call.h"
#include "runtime/link/tcp_socket.h"
#include "runtime/link/unix_socket.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace internal {
namespace {

// So long a link over TCP may be silent at first. Then it is given up: what is
// between the two machines may let gRPC through. A lost packet is sent again
// after one second.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(3);

class LinkActorStream : public ActorStream,
                        public FrameLinkUser,
                        public std::enable_shared_from_this<LinkActorStream> {
 public:
  LinkActorStream(std::shared_ptr<ActorStreamUser> user, ScopedFd fd,
                  absl::string_view preface)
      : user_(std::move(user)),
        link_(std::make_shared<FrameLink>(std::move(fd),
                                          FrameLink::Side::kCaller,
                                          kMaxMessageBytes, preface)) {}

  bool Start(const std::string& token, const Metadata& metadata) {
    if (!link_->Start(shared_from_this())) return false;
    LinkHello hello(metadata.begin(), metadata.end());
    hello.emplace(kVersionKey, kVersion);
    if (!token.empty()) hello.emplace(kTokenKey, token);
    Send(kLinkHello, EncodeLinkHello(hello), /*at_once=*/true);
    link_->Read();
    return true;
  }

  void LimitSilence() {
    RunInBackground(
        [weak = weak_from_this()] {
          const auto self = weak.lock();
          if (self == nullptr || self->link_->heard_ever()) return;
          self->link_->Cancel(absl::UnavailableError(absl::StrCat(
              "no answer within ", absl::FormatDuration(kAnswerTimeout))));
        },
        kAnswerTimeout);
  }

  // ActorStream.
  bool writable() const override { return !writing_; }
  void Write(const absl::Cord& frame, bool at_once) override {
    Send(kLinkFrame, frame, at_once);
  }
  void Read() override { link_->Read(); }
  void Cancel() override { link_->Cancel(absl::CancelledError("cancelled")); }

  // FrameLinkUser.
  void OnLinkFrame(uint32_t kind, const absl::Cord& bytes) override {
    v1::Status status;
    if (kind == kLinkFrame) {
      answered_ = true;
      user_->OnFrame(this, bytes);
    } else if (kind == kLinkEnd && status.ParseFromString(std::string(bytes))) {
      answered_ = true;
      link_->Cancel(FromProto(status));
    } else {
      link_->Cancel(absl::InternalError("a malformed message"));
    }
  }
  void OnLinkWritten() override {
    writing_ = false;
    user_->OnWritable(this);
  }
  void OnLinkEnded(const absl::Status& status) override {
    // Who says nothing that a link may say is no actor that serves links.
    const bool stranger = !answered_ && !absl::IsCancelled(status);
    user_->OnStreamEnded(
        this, stranger ? absl::UnavailableError(status.message()) : status);
  }

 private:
  void Send(uint32_t kind, const absl::Cord& bytes, bool at_once) {
    // First: the loop may be done with it before Write returns.
    writing_ = true;
    if (link_->Write(kind, bytes, at_once)) writing_ = false;
  }

  const std::shared_ptr<ActorStreamUser> user_;
  const std::shared_ptr<FrameLink> link_;
  std::atomic<bool> writing_ = false;
  bool answered_ = false;  // Of the loop's thread.
};

}  // namespace

std::shared_ptr<ActorStream> StartUnixActorStream(
    std::shared_ptr<ActorStreamUser> user, const std::string& address,
    const std::string& token, const ActorStream::Metadata& metadata) {
  ScopedFd fd = DialUnix(address);
  if (!fd.valid()) return nullptr;
  auto stream =
      std::make_shared<LinkActorStream>(std::move(user), std::move(fd), "");
  if (!stream->Start(token, metadata)) return nullptr;
  return stream;
}

std::shared_ptr<ActorStream> StartTcpActorStream(
    std::shared_ptr<ActorStreamUser> user, const std::string& address,
    const std::string& token, const ActorStream::Metadata& metadata) {
  ScopedFd fd = DialTcp(address);
  if (!fd.valid()) return nullptr;
  auto stream = std::make_shared<LinkActorStream>(std::move(user),
                                                  std::move(fd), kLinkPreface);
  if (!stream->Start(token, metadata)) return nullptr;
  stream->LimitSilence();
  return stream;
}

}  // namespace internal
}  // namespace miniray
