// What a caller and an actor say to each other through a LocalLink: first a
// hello of the caller, then frames as in ActorService.Channel, at last the
// actor's reason to end it.

#ifndef MINIRAY_RUNTIME_LOCAL_LOCAL_CALL_H_
#define MINIRAY_RUNTIME_LOCAL_LOCAL_CALL_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "runtime/local/local_link.h"

namespace miniray {
namespace internal {

inline constexpr uint32_t kLocalHello = LocalLink::kFirstKind;
inline constexpr uint32_t kLocalFrame = LocalLink::kFirstKind + 1;
inline constexpr uint32_t kLocalEnd = LocalLink::kFirstKind + 2;  // v1.Status

inline constexpr uint64_t kMaxLocalHelloBytes = 16 << 10;

// The metadata of the gRPC stream that it stands for. No zero bytes.
using LocalHello = std::map<std::string, std::string, std::less<>>;

absl::Cord EncodeLocalHello(const LocalHello& hello);
// Errors: INVALID_ARGUMENT, malformed.
absl::StatusOr<LocalHello> DecodeLocalHello(const absl::Cord& bytes);

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_LOCAL_LOCAL_CALL_H_
