// proto/actor.proto's frames, read and written without copying arguments and
// results. See runtime/wire/wire.h.

#ifndef MINIRAY_RUNTIME_WIRE_CALL_MESSAGES_H_
#define MINIRAY_RUNTIME_WIRE_CALL_MESSAGES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace miniray {
namespace internal {

struct CallMessage {
  uint64_t call_id = 0;
  std::string method;
  std::vector<absl::Cord> args;  // Serialized Values.
};

struct ReplyMessage {
  uint64_t call_id = 0;
  absl::Status status;
  absl::Cord result;  // A serialized Value.
};

// One entry of CallFrame.calls (ReplyFrame.replies), with its tag: entries put
// one after the other make a frame.
absl::Cord EncodeCall(const CallMessage& call);
absl::Cord EncodeReply(const ReplyMessage& reply);

// Errors: INVALID_ARGUMENT, malformed.
absl::StatusOr<std::vector<CallMessage>> DecodeCallFrame(
    const absl::Cord& frame);
absl::StatusOr<std::vector<ReplyMessage>> DecodeReplyFrame(
    const absl::Cord& frame);

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WIRE_CALL_MESSAGES_H_
