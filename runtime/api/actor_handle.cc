#include "runtime/api/actor_handle.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "proto/actor.pb.h"

namespace miniray {
namespace {

// Field numbers of ActorRef.
constexpr int kActorId = 1, kClassName = 2, kName = 3;
constexpr int kMaxRetries = 4, kMaxPendingCalls = 5, kMaxPendingBytes = 6;

// int32 in protobuf: a negative one takes 64 bits.
void PutInt(int field, int64_t value, WireWriter* out) {
  if (value != 0) {
    out->Varint(field, static_cast<uint64_t>(value));
  }
}

// What the arguments of a call may have in its message, which protobuf limits
// to 2 GiB.
constexpr size_t kMaxSentArguments = size_t{1} << 30;

// Puts the largest arguments into a node's object store until the others fit.
absl::Status PutLargeArguments(internal::Client* client,
                               internal::CallRequest* request) {
  size_t total = 0;
  for (const absl::Cord& argument : request->args) total += argument.size();
  while (total > kMaxSentArguments) {
    const auto largest = std::max_element(
        request->args.begin(), request->args.end(),
        [](const auto& a, const auto& b) { return a.size() < b.size(); });
    const size_t size = largest->size();
    std::shared_ptr<void> hold;
    absl::StatusOr<absl::Cord> reference = client->PutObject(*largest, &hold);
    if (!reference.ok()) {
      return absl::Status(
          reference.status().code(),
          absl::StrCat("argument ", largest - request->args.begin() + 1,
                       " has ", size,
                       " bytes; where all have more than 1 GiB, it goes "
                       "through a node's object store: ",
                       reference.status().message()));
    }
    auto put = std::make_shared<internal::CallState>("Put");
    put->Hold(std::move(hold));
    request->holds.push_back(std::move(put));
    total = total - size + reference->size();
    *largest = *std::move(reference);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AnyActorHandle::WaitReady(absl::Duration timeout) const {
  if (client_ == nullptr) {
    return absl::FailedPreconditionError("empty actor handle");
  }
  return client_->WaitUntilAlive(identity_, timeout);
}

absl::StatusOr<v1::InspectResponse> AnyActorHandle::Inspect(
    absl::Duration timeout) const {
  if (client_ == nullptr) {
    return absl::FailedPreconditionError("empty actor handle");
  }
  return client_->Inspect(identity_, timeout);
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
  request.timeout = options.timeout;
  if (request.max_retries < -1) {
    return FailedCall(method, absl::InvalidArgumentError(absl::StrCat(
                                  "max_retries = ", request.max_retries,
                                  "; -1 is for ever")));
  }
  if (const absl::Status put = PutLargeArguments(client_.get(), &request);
      !put.ok()) {
    return FailedCall(method, put);
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
  PutInt(kMaxPendingBytes, handle.identity().max_pending_bytes, &nested);
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
      } else if (field.number == kMaxPendingBytes) {
        identity.max_pending_bytes = static_cast<int64_t>(field.scalar);
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
