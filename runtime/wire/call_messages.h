// proto/actor.proto's frames, read and written without copying arguments and
// results. See runtime/wire/wire.h.

#ifndef MINIRAY_RUNTIME_WIRE_CALL_MESSAGES_H_
#define MINIRAY_RUNTIME_WIRE_CALL_MESSAGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "runtime/wire/wire.h"

namespace miniray {
namespace internal {

struct CallMessage {
  uint64_t call_id = 0;
  std::string method;
  std::vector<absl::Cord> args;  // Serialized Values.
  std::string concurrency_group;
  bool keep_result = false;
  uint64_t wanted_bytes = 0;
  uint64_t time_left_us = 0;  // 0: no limit.
  // Not OK: the call came, but what it says could not be read.
  absl::Status broken;
};

struct CallFrame {
  std::vector<CallMessage> calls;
  std::vector<uint64_t> acknowledged;
  std::vector<uint64_t> cancelled;
  std::vector<std::string> released;
  bool reads_memory = false;
  bool takes_references = false;
};

struct ReplyMessage {
  uint64_t call_id = 0;
  absl::Status status;
  absl::Cord result;  // A serialized Value.
  bool kept = false;
  std::string held_id;
  // The result lay in memory that is not there any more, as when its process
  // was killed; then `status` says so.
  bool lost = false;
};

struct MethodGroup {
  std::string name;
  std::vector<std::string> methods;
};

struct SessionMessage {
  bool known = false;
  uint64_t last_call_id = 0;
  std::string shared_memory;
  bool reads_memory = false;
  std::vector<MethodGroup> groups;
};

struct ReplyFrame {
  std::vector<ReplyMessage> replies;
  std::optional<SessionMessage> session;
};

// A Call without its id and the time that it has left, which are known only
// when it is sent.
absl::Cord EncodeCallBody(const CallMessage& call);

// Appends one entry of CallFrame.calls to `frame`. `shared`, if not empty, is
// the body as SharedBytes.
void AppendCall(uint64_t call_id, const absl::Cord& body, WireWriter* frame,
                const absl::Cord& shared = {}, uint64_t time_left_us = 0);
void AppendAcknowledged(const std::vector<uint64_t>& ids, WireWriter* frame);
void AppendCancelled(const std::vector<uint64_t>& ids, WireWriter* frame);
void AppendReleased(absl::string_view object_id, WireWriter* frame);
void AppendReadsMemory(WireWriter* frame);
void AppendTakesReferences(WireWriter* frame);

// One entry of CallFrame.calls (ReplyFrame.replies), with its tag: entries put
// one after the other make a frame.
absl::Cord EncodeCall(const CallMessage& call);
// `shared`, if not empty, is the result as SharedBytes.
absl::Cord EncodeReply(const ReplyMessage& reply,
                       const absl::Cord& shared = {});
absl::Cord EncodeSession(const SessionMessage& session);

// Entries of one kind that a frame may hold: what a receiver makes of an entry
// is larger than the entry.
inline constexpr size_t kMaxFrameEntries = 1 << 18;

// The bytes that a SharedBytes stands for.
using SharedBytesDecoder =
    absl::FunctionRef<absl::StatusOr<absl::Cord>(const absl::Cord&)>;
// FAILED_PRECONDITION.
absl::StatusOr<absl::Cord> RefuseSharedBytes(const absl::Cord& encoded);

// Errors: INVALID_ARGUMENT, malformed, or too many entries. An entry whose
// SharedBytes cannot be decoded is there, with that as its status.
absl::StatusOr<CallFrame> DecodeCallFrame(
    const absl::Cord& frame,
    SharedBytesDecoder decode_shared = &RefuseSharedBytes);
absl::StatusOr<ReplyFrame> DecodeReplyFrame(
    const absl::Cord& frame,
    SharedBytesDecoder decode_shared = &RefuseSharedBytes);

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WIRE_CALL_MESSAGES_H_
