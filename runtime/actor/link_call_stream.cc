#include "runtime/actor/link_call_stream.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/background.h"
#include "runtime/base/refusal_log.h"
#include "runtime/link/link_call.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace internal {
namespace {

constexpr char kMethod[] = "Channel";

}  // namespace

LinkCallStream::LinkCallStream(
    std::shared_ptr<const LinkCallServer::Options> options,
    std::shared_ptr<LinkPlaces> places, ScopedFd fd, CallPath path,
    std::string peer)
    : options_(std::move(options)),
      places_(std::move(places)),
      path_(path),
      peer_(std::move(peer)),
      link_(std::make_shared<FrameLink>(std::move(fd), FrameLink::Side::kServer,
                                        kMaxLinkHelloBytes)) {}

void LinkCallStream::Start() {
  if (!link_->Start(shared_from_this())) return;
  link_->Read();
  RunInBackground(
      [weak = weak_from_this()] {
        const auto self = weak.lock();
        if (self != nullptr && !self->admitted_) self->Cancel();
      },
      kHelloTimeout);
}

bool LinkCallStream::Write(const absl::Cord& frame, bool at_once) {
  if (finished_) return false;
  return link_->Write(kLinkFrame, frame, at_once);
}

void LinkCallStream::Read() {
  if (!finished_) link_->Read();
}

void LinkCallStream::Finish(const absl::Status& status) {
  if (finished_.exchange(true)) return;
  link_->Write(kLinkEnd, absl::Cord(ToProto(status).SerializeAsString()),
               /*at_once=*/false);
  link_->Finish();
}

void LinkCallStream::Cancel() {
  link_->Cancel(absl::CancelledError("cancelled"));
}

void LinkCallStream::OnLinkFrame(uint32_t kind, const absl::Cord& bytes) {
  if (session_ != nullptr) {
    if (kind == kLinkFrame) return session_->OnFrame(this, bytes);
  } else if (kind == kLinkHello) {
    if (absl::Status status = Greet(bytes); !status.ok()) Finish(status);
    return;
  }
  if (!admitted_) Refuse("it begins with a malformed message");
  Finish(absl::InvalidArgumentError("a malformed message"));
}

void LinkCallStream::OnLinkWritten() {
  if (session_ != nullptr) session_->OnWritten(this, /*ok=*/true);
}

void LinkCallStream::OnLinkEnded(const absl::Status& status) {
  finished_ = true;
  if (!admitted_) {
    Refuse(absl::StrCat("it did not show the token: ", absl::IsCancelled(status)
                                                           ? "it was slow"
                                                           : status.message()));
  }
  if (admitted_) places_->GiveBack();
  if (session_ != nullptr) actor_->OnStreamEnded(session_.get(), this);
}

void LinkCallStream::Refuse(absl::string_view why) {
  if (std::exchange(refused_, true)) return;
  LogRefusal(peer_, kMethod, why);
}

absl::Status LinkCallStream::Greet(const absl::Cord& bytes) {
  absl::StatusOr<LinkHello> hello = DecodeLinkHello(bytes);
  if (!hello.ok()) {
    Refuse(hello.status().message());
    return hello.status();
  }
  const auto find = [&](const char* key) {
    const auto it = hello->find(key);
    return it == hello->end() ? nullptr : &it->second;
  };
  if (absl::Status status =
          CheckToken({.token = find(kTokenKey), .version = find(kVersionKey)},
                     options_->token, peer_, kMethod);
      !status.ok()) {
    refused_ = true;
    return status;
  }
  if (!places_->Take()) {
    refused_ = true;  // No stranger: it goes on with gRPC.
    return absl::UnavailableError("the actor has no room for one more link");
  }
  admitted_ = true;
  link_->set_max_bytes(kMaxMessageBytes);
  return options_->attach(
      [&](const char* key) {
        const std::string* const value = find(key);
        return value == nullptr ? std::string() : *value;
      },
      [&](std::shared_ptr<HostedActor> actor,
          std::shared_ptr<CallSession> session) {
        actor_ = std::move(actor);
        session_ = std::move(session);
        return shared_from_this();
      });
}

}  // namespace internal
}  // namespace miniray
