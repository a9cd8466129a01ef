// Serialized messages whose large parts lie in shared memory: see SharedBytes
// in proto/actor.proto.

#ifndef MINIRAY_RUNTIME_SHM_SHARED_BYTES_H_
#define MINIRAY_RUNTIME_SHM_SHARED_BYTES_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"

namespace miniray {

// Bytes of a message, in large parts, from which shared memory pays.
inline constexpr size_t kMinSharedBytes = 64 << 10;

// Returns `bytes` with its large parts in this process's shared memory, where
// they are not in somebody's already: one copy. What does not fit stays where
// it is.
absl::Cord MoveToSharedMemory(absl::Cord bytes);

// Returns a serialized SharedBytes for `bytes`, if any of it lies in shared
// memory, this process's or another one's whose bytes are passed on; else an
// empty cord. `bytes` must live until the receiver has opened it.
absl::Cord EncodeSharedBytes(const absl::Cord& bytes);

// The opposite. The result shares the sender's memory, which serves no other
// use while it lives. Safe on any bytes. Errors: INVALID_ARGUMENT, malformed;
// those of BorrowedMemory::Borrow.
absl::StatusOr<absl::Cord> DecodeSharedBytes(const absl::Cord& encoded);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_SHM_SHARED_BYTES_H_
