#include "runtime/wire/call_messages.h"

#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/wire/wire.h"

namespace miniray {
namespace internal {
namespace {

using Type = WireField::Type;

// CallFrame.calls and ReplyFrame.replies.
constexpr int kEntries = 1;
// Call.
constexpr int kCallId = 1, kMethod = 2, kArgs = 3;
// Reply (call_id as in Call) and Status.
constexpr int kStatus = 2, kResult = 3, kCode = 1, kText = 2;

absl::Status DecodeStatus(const absl::Cord& bytes, absl::Status* out) {
  WireReader reader(bytes);
  WireField field;
  uint64_t code = 0;
  std::string text;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    if (field.number == kCode && field.type == Type::kVarint) {
      code = field.scalar;
    } else if (field.number == kText && field.type == Type::kBytes) {
      absl::CopyCordToString(field.bytes, &text);
    }
  }
  if (code > static_cast<uint64_t>(absl::StatusCode::kUnauthenticated)) {
    *out = absl::UnknownError(text);
  } else {
    *out = absl::Status(static_cast<absl::StatusCode>(code), text);
  }
  return absl::OkStatus();
}

absl::Status DecodeEntry(const absl::Cord& bytes, CallMessage* call) {
  WireReader reader(bytes);
  WireField field;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    if (field.number == kCallId && field.type == Type::kVarint) {
      call->call_id = field.scalar;
    } else if (field.number == kMethod && field.type == Type::kBytes) {
      absl::CopyCordToString(field.bytes, &call->method);
    } else if (field.number == kArgs && field.type == Type::kBytes) {
      call->args.push_back(std::move(field.bytes));
    }
  }
  return absl::OkStatus();
}

absl::Status DecodeEntry(const absl::Cord& bytes, ReplyMessage* reply) {
  WireReader reader(bytes);
  WireField field;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    if (field.number == kCallId && field.type == Type::kVarint) {
      reply->call_id = field.scalar;
    } else if (field.number == kStatus && field.type == Type::kBytes) {
      MR_RETURN_IF_ERROR(DecodeStatus(field.bytes, &reply->status));
    } else if (field.number == kResult && field.type == Type::kBytes) {
      reply->result = std::move(field.bytes);
    }
  }
  return absl::OkStatus();
}

template <class Entry>
absl::StatusOr<std::vector<Entry>> DecodeFrame(const absl::Cord& frame) {
  std::vector<Entry> entries;
  WireReader reader(frame);
  WireField field;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    if (field.number != kEntries || field.type != Type::kBytes) continue;
    MR_RETURN_IF_ERROR(DecodeEntry(field.bytes, &entries.emplace_back()));
  }
  return entries;
}

absl::Cord Frame(WireWriter entry) {
  WireWriter frame;
  frame.Message(kEntries, std::move(entry));
  return std::move(frame).Take();
}

}  // namespace

absl::Cord EncodeCall(const CallMessage& call) {
  WireWriter entry;
  entry.Varint(kCallId, call.call_id);
  entry.Bytes(kMethod, absl::string_view(call.method));
  for (const absl::Cord& arg : call.args) entry.Bytes(kArgs, arg);
  return Frame(std::move(entry));
}

absl::Cord EncodeReply(const ReplyMessage& reply) {
  WireWriter entry;
  entry.Varint(kCallId, reply.call_id);
  if (reply.status.ok()) {
    entry.Bytes(kResult, reply.result);
  } else {
    WireWriter status;
    status.Varint(kCode, static_cast<uint64_t>(reply.status.code()));
    // An exception's text may hold any bytes, a protobuf `string` may not.
    status.Bytes(kText, absl::string_view(ToUtf8(reply.status.message())));
    entry.Message(kStatus, std::move(status));
  }
  return Frame(std::move(entry));
}

absl::StatusOr<std::vector<CallMessage>> DecodeCallFrame(
    const absl::Cord& frame) {
  return DecodeFrame<CallMessage>(frame);
}

absl::StatusOr<std::vector<ReplyMessage>> DecodeReplyFrame(
    const absl::Cord& frame) {
  return DecodeFrame<ReplyMessage>(frame);
}

}  // namespace internal
}  // namespace miniray
