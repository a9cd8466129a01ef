#include "runtime/wire/call_messages.h"

#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/wire/wire.h"

namespace miniray {
namespace internal {
namespace {

using Type = WireField::Type;

// CallFrame.calls and ReplyFrame.replies, and what else is in a frame.
constexpr int kEntries = 1;
constexpr int kAcknowledged = 2, kCancelled = 3, kReleased = 4, kReads = 5;
constexpr int kTakesReferences = 6;
constexpr int kSession = 2;
// Call.
constexpr int kCallId = 1, kMethod = 2, kArgs = 3, kGroup = 4, kKeep = 5;
constexpr int kShared = 6, kWanted = 7, kTimeLeft = 8;
// Session.
constexpr int kKnown = 1, kLastCallId = 2, kMemory = 3, kSessionReads = 4;
constexpr int kGroups = 5, kGroupName = 1, kGroupMethods = 2;
// Reply (call_id as in Call) and Status.
constexpr int kStatus = 2, kResult = 3, kSharedResult = 4, kKept = 5,
              kHeldId = 6;
constexpr int kCode = 1, kText = 2;

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

absl::Status DecodeEntry(const absl::Cord& bytes,
                         SharedBytesDecoder decode_shared, CallMessage* call) {
  WireReader reader(bytes);
  WireField field;
  absl::Cord shared;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    if (field.number == kCallId && field.type == Type::kVarint) {
      call->call_id = field.scalar;
    } else if (field.number == kMethod && field.type == Type::kBytes) {
      absl::CopyCordToString(field.bytes, &call->method);
    } else if (field.number == kArgs && field.type == Type::kBytes) {
      call->args.push_back(std::move(field.bytes));
    } else if (field.number == kGroup && field.type == Type::kBytes) {
      absl::CopyCordToString(field.bytes, &call->concurrency_group);
    } else if (field.number == kKeep && field.type == Type::kVarint) {
      call->keep_result = field.scalar != 0;
    } else if (field.number == kWanted && field.type == Type::kVarint) {
      call->wanted_bytes = field.scalar;
    } else if (field.number == kTimeLeft && field.type == Type::kVarint) {
      call->time_left_us = field.scalar;
    } else if (field.number == kShared && field.type == Type::kBytes) {
      shared = std::move(field.bytes);
    }
  }
  if (shared.empty()) return absl::OkStatus();
  const absl::StatusOr<absl::Cord> fields = decode_shared(shared);
  if (!fields.ok()) {
    call->broken = fields.status();
    return absl::OkStatus();
  }
  const uint64_t call_id = call->call_id;
  // Not once more: what is shared is no SharedBytes.
  MR_RETURN_IF_ERROR(DecodeEntry(*fields, &RefuseSharedBytes, call));
  call->call_id = call_id;
  return absl::OkStatus();
}

absl::Status DecodeEntry(const absl::Cord& bytes,
                         SharedBytesDecoder decode_shared,
                         ReplyMessage* reply) {
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
    } else if (field.number == kSharedResult && field.type == Type::kBytes) {
      absl::StatusOr<absl::Cord> result = decode_shared(field.bytes);
      reply->status = result.status();
      reply->lost = absl::IsNotFound(result.status());
      if (result.ok()) reply->result = *std::move(result);
    } else if (field.number == kKept && field.type == Type::kVarint) {
      reply->kept = field.scalar != 0;
    } else if (field.number == kHeldId && field.type == Type::kBytes) {
      absl::CopyCordToString(field.bytes, &reply->held_id);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCount(size_t count) {
  if (count < kMaxFrameEntries) return absl::OkStatus();
  return absl::InvalidArgumentError("a frame has too many entries");
}

absl::StatusOr<MethodGroup> DecodeGroup(const absl::Cord& bytes) {
  MethodGroup group;
  WireReader reader(bytes);
  WireField field;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    if (field.type != Type::kBytes) continue;
    if (field.number == kGroupName) {
      absl::CopyCordToString(field.bytes, &group.name);
    } else if (field.number == kGroupMethods) {
      MR_RETURN_IF_ERROR(CheckCount(group.methods.size()));
      absl::CopyCordToString(field.bytes, &group.methods.emplace_back());
    }
  }
  return group;
}

absl::Status DecodeSession(const absl::Cord& bytes, SessionMessage* session) {
  WireReader reader(bytes);
  WireField field;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    if (field.number == kMemory && field.type == Type::kBytes) {
      absl::CopyCordToString(field.bytes, &session->shared_memory);
    } else if (field.number == kGroups && field.type == Type::kBytes) {
      MR_RETURN_IF_ERROR(CheckCount(session->groups.size()));
      MR_ASSIGN_OR_RETURN(session->groups.emplace_back(),
                          DecodeGroup(field.bytes));
    }
    if (field.type != Type::kVarint) continue;
    if (field.number == kKnown) session->known = field.scalar != 0;
    if (field.number == kLastCallId) session->last_call_id = field.scalar;
    if (field.number == kSessionReads)
      session->reads_memory = field.scalar != 0;
  }
  return absl::OkStatus();
}

// A field of `repeated uint64`, packed or not.
absl::Status DecodeIds(const WireField& field, std::vector<uint64_t>* ids) {
  if (field.type == Type::kVarint) {
    MR_RETURN_IF_ERROR(CheckCount(ids->size()));
    ids->push_back(field.scalar);
    return absl::OkStatus();
  }
  if (field.type != Type::kBytes) return absl::OkStatus();
  WireReader reader(field.bytes);
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(CheckCount(ids->size()));
    MR_ASSIGN_OR_RETURN(const uint64_t id, reader.RawVarint());
    ids->push_back(id);
  }
  return absl::OkStatus();
}

absl::Cord Frame(WireWriter entry) {
  WireWriter frame;
  frame.Message(kEntries, std::move(entry));
  return std::move(frame).Take();
}

}  // namespace

absl::Cord EncodeCallBody(const CallMessage& call) {
  WireWriter body;
  body.Bytes(kMethod, absl::string_view(call.method));
  for (const absl::Cord& arg : call.args) body.Bytes(kArgs, arg);
  if (!call.concurrency_group.empty()) {
    body.Bytes(kGroup, absl::string_view(call.concurrency_group));
  }
  if (call.keep_result) body.Varint(kKeep, 1);
  if (call.wanted_bytes != 0) body.Varint(kWanted, call.wanted_bytes);
  return std::move(body).Take();
}

void AppendCall(uint64_t call_id, const absl::Cord& body, WireWriter* frame,
                const absl::Cord& shared, uint64_t time_left_us) {
  WireWriter entry;
  entry.Varint(kCallId, call_id);
  if (shared.empty()) {
    entry.Raw(body);
  } else {
    entry.Bytes(kShared, shared);
  }
  if (time_left_us != 0) entry.Varint(kTimeLeft, time_left_us);
  frame->Message(kEntries, std::move(entry));
}

void AppendAcknowledged(const std::vector<uint64_t>& ids, WireWriter* frame) {
  frame->PackedVarints(kAcknowledged, ids);
}

void AppendCancelled(const std::vector<uint64_t>& ids, WireWriter* frame) {
  frame->PackedVarints(kCancelled, ids);
}

void AppendReleased(absl::string_view object_id, WireWriter* frame) {
  frame->Bytes(kReleased, object_id);
}

void AppendReadsMemory(WireWriter* frame) { frame->Varint(kReads, 1); }

void AppendTakesReferences(WireWriter* frame) {
  frame->Varint(kTakesReferences, 1);
}

absl::Cord EncodeCall(const CallMessage& call) {
  WireWriter frame;
  AppendCall(call.call_id, EncodeCallBody(call), &frame, /*shared=*/{},
             call.time_left_us);
  return std::move(frame).Take();
}

absl::Cord EncodeReply(const ReplyMessage& reply, const absl::Cord& shared) {
  WireWriter entry;
  entry.Varint(kCallId, reply.call_id);
  if (reply.status.ok() && !shared.empty()) {
    entry.Bytes(kSharedResult, shared);
  } else if (reply.status.ok()) {
    entry.Bytes(kResult, reply.result);
    if (reply.kept) entry.Varint(kKept, 1);
  } else {
    WireWriter status;
    status.Varint(kCode, static_cast<uint64_t>(reply.status.code()));
    // An exception's text may hold any bytes, a protobuf `string` may not.
    status.Bytes(kText, absl::string_view(ToUtf8(reply.status.message())));
    entry.Message(kStatus, std::move(status));
  }
  if (reply.status.ok() && !reply.held_id.empty()) {
    entry.Bytes(kHeldId, absl::string_view(reply.held_id));
  }
  return Frame(std::move(entry));
}

absl::Cord EncodeSession(const SessionMessage& session) {
  WireWriter entry;
  if (session.known) entry.Varint(kKnown, 1);
  entry.Varint(kLastCallId, session.last_call_id);
  if (!session.shared_memory.empty()) {
    entry.Bytes(kMemory, absl::string_view(session.shared_memory));
  }
  if (session.reads_memory) entry.Varint(kSessionReads, 1);
  for (const MethodGroup& group : session.groups) {
    WireWriter nested;
    nested.Bytes(kGroupName, absl::string_view(group.name));
    for (const std::string& method : group.methods) {
      nested.Bytes(kGroupMethods, absl::string_view(method));
    }
    entry.Message(kGroups, std::move(nested));
  }
  WireWriter frame;
  frame.Message(kSession, std::move(entry));
  return std::move(frame).Take();
}

absl::StatusOr<absl::Cord> RefuseSharedBytes(const absl::Cord&) {
  return absl::FailedPreconditionError("shared memory is not expected here");
}

absl::StatusOr<CallFrame> DecodeCallFrame(const absl::Cord& bytes,
                                          SharedBytesDecoder decode_shared) {
  CallFrame frame;
  WireReader reader(bytes);
  WireField field;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    if (field.number == kEntries && field.type == Type::kBytes) {
      MR_RETURN_IF_ERROR(CheckCount(frame.calls.size()));
      MR_RETURN_IF_ERROR(
          DecodeEntry(field.bytes, decode_shared, &frame.calls.emplace_back()));
    } else if (field.number == kAcknowledged) {
      MR_RETURN_IF_ERROR(DecodeIds(field, &frame.acknowledged));
    } else if (field.number == kCancelled) {
      MR_RETURN_IF_ERROR(DecodeIds(field, &frame.cancelled));
    } else if (field.number == kReleased && field.type == Type::kBytes) {
      MR_RETURN_IF_ERROR(CheckCount(frame.released.size()));
      absl::CopyCordToString(field.bytes, &frame.released.emplace_back());
    } else if (field.number == kReads && field.type == Type::kVarint) {
      frame.reads_memory = field.scalar != 0;
    } else if (field.number == kTakesReferences &&
               field.type == Type::kVarint) {
      frame.takes_references = field.scalar != 0;
    }
  }
  return frame;
}

absl::StatusOr<ReplyFrame> DecodeReplyFrame(const absl::Cord& bytes,
                                            SharedBytesDecoder decode_shared) {
  ReplyFrame frame;
  WireReader reader(bytes);
  WireField field;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    if (field.type != Type::kBytes) continue;
    if (field.number == kEntries) {
      MR_RETURN_IF_ERROR(CheckCount(frame.replies.size()));
      MR_RETURN_IF_ERROR(DecodeEntry(field.bytes, decode_shared,
                                     &frame.replies.emplace_back()));
    } else if (field.number == kSession) {
      MR_RETURN_IF_ERROR(DecodeSession(field.bytes, &frame.session.emplace()));
    }
  }
  return frame;
}

}  // namespace internal
}  // namespace miniray
