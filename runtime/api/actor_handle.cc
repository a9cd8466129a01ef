#include "runtime/api/actor_handle.h"

#include "absl/strings/str_cat.h"

namespace miniray {
namespace {

// Field numbers of ActorRef.
constexpr int kActorId = 1, kClassName = 2, kName = 3;
constexpr int kMaxRetries = 4, kMaxPendingCalls = 5;

// int32 in protobuf: a negative one takes 64 bits.
void PutInt(int field, int value, WireWriter* out) {
  if (value != 0) {
    out->Varint(field, static_cast<uint64_t>(static_cast<int64_t>(value)));
  }
}

}  // namespace

absl::Status AnyActorHandle::WaitReady(absl::Duration timeout) const {
  if (client_ == nullptr) {
    return absl::FailedPreconditionError("empty actor handle");
  }
  return client_->WaitUntilAlive(identity_, timeout);
}

absl::Status AnyActorHandle::Kill(bool no_restart) const {
  if (client_ == nullptr) {
    return absl::FailedPreconditionError("empty actor handle");
  }
  return client_->KillActor(identity_, no_restart);
}

std::shared_ptr<internal::CallState> AnyActorHandle::Submit(
    absl::string_view method, internal::EncodedArguments args,
    const CallOptions& options) const {
  if (client_ == nullptr) {
    return FailedCall(method,
                      absl::FailedPreconditionError("empty actor handle"));
  }
  internal::CallRequest request;
  request.method = std::string(method);
  request.args = std::move(args.args);
  request.refs = std::move(args.refs);
  request.holds = std::move(args.holds);
  request.keep_result = options.keep_result;
  request.max_retries = options.max_retries.value_or(identity_.max_retries);
  request.concurrency_group = options.concurrency_group;
  if (request.max_retries < -1) {
    return FailedCall(method, absl::InvalidArgumentError(absl::StrCat(
                                  "max_retries = ", request.max_retries,
                                  "; -1 is for ever")));
  }
  return client_->Call(identity_, std::move(request));
}

std::shared_ptr<internal::CallState> AnyActorHandle::FailedCall(
    absl::string_view method, absl::Status status) const {
  return internal::CallState::Failed(absl::StrCat(ToString(), ".", method),
                                     std::move(status));
}

namespace internal {

void EncodeActorRef(const AnyActorHandle& handle, WireWriter* out) {
  WireWriter nested;
  nested.Bytes(kActorId, absl::string_view(handle.actor_id()));
  nested.Bytes(kClassName, absl::string_view(handle.class_name()));
  nested.Bytes(kName, absl::string_view(handle.name()));
  PutInt(kMaxRetries, handle.identity().max_retries, &nested);
  PutInt(kMaxPendingCalls, handle.identity().max_pending_calls, &nested);
  out->Message(static_cast<int>(ValueKind::kActor), std::move(nested));
}

absl::Status DecodeActorRef(const ValueView& view, AnyActorHandle* out) {
  if (view.kind != ValueKind::kActor) return view.Mismatch("an actor handle");
  ActorIdentity identity;
  WireReader reader(view.field.bytes);
  WireField field;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    if (field.type == WireField::Type::kVarint) {
      if (field.number == kMaxRetries) {
        identity.max_retries = static_cast<int>(field.scalar);
      } else if (field.number == kMaxPendingCalls) {
        identity.max_pending_calls = static_cast<int>(field.scalar);
      }
      continue;
    }
    if (field.type != WireField::Type::kBytes) continue;
    if (field.number == kActorId) {
      absl::CopyCordToString(field.bytes, &identity.actor_id);
    } else if (field.number == kClassName) {
      absl::CopyCordToString(field.bytes, &identity.class_name);
    } else if (field.number == kName) {
      absl::CopyCordToString(field.bytes, &identity.name);
    }
  }
  *out = AnyActorHandle(Client::Current(), std::move(identity));
  return absl::OkStatus();
}

}  // namespace internal
}  // namespace miniray
