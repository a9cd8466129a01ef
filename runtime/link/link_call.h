// What a caller and an actor say to each other through a FrameLink: first a
// hello of the caller, then frames as in ActorService.Channel, at last the
// actor's reason to end it.

#ifndef MINIRAY_RUNTIME_LINK_LINK_CALL_H_
#define MINIRAY_RUNTIME_LINK_LINK_CALL_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "runtime/link/frame_link.h"

namespace miniray {
namespace internal {

inline constexpr uint32_t kLinkHello = FrameLink::kFirstKind;
inline constexpr uint32_t kLinkFrame = FrameLink::kFirstKind + 1;
inline constexpr uint32_t kLinkEnd = FrameLink::kFirstKind + 2;  // v1.Status

inline constexpr uint64_t kMaxLinkHelloBytes = 16 << 10;

// The metadata of the gRPC stream that it stands for. No zero bytes.
using LinkHello = std::map<std::string, std::string, std::less<>>;

absl::Cord EncodeLinkHello(const LinkHello& hello);
// Errors: INVALID_ARGUMENT, malformed.
absl::StatusOr<LinkHello> DecodeLinkHello(const absl::Cord& bytes);

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_LINK_LINK_CALL_H_
