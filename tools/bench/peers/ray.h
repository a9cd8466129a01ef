// Ray as a peer, where python3 can import it: the same work through its actors.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_RAY_H_
#define MINIRAY_TOOLS_BENCH_PEERS_RAY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tools/bench/child.h"

namespace miniray::bench {

inline constexpr char kNoRay[] = "Ray: not installed";

// Starts a Ray of its own on this machine; null if python3 cannot import it.
// Its commands, each answered with one number:
//   round_trip N   microseconds of one call there and back, median of N
//   flood N        calls a second of N calls from one caller to one actor
//   result N       seconds until the caller has a result of N bytes
//   first_call     seconds to create an actor and have its first answer
absl::StatusOr<std::unique_ptr<Child>> StartRay();

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_RAY_H_
