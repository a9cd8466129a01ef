// Open MPI as a peer, where mpirun is installed. Nothing is compiled against
// it: its library is opened by the ranks.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_OPEN_MPI_H_
#define MINIRAY_TOOLS_BENCH_PEERS_OPEN_MPI_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace miniray::bench {

inline constexpr char kNoOpenMpi[] = "Open MPI: not installed";
bool HasOpenMpi();

// The role of a rank's process, and what it runs.
inline constexpr char kOpenMpiRole[] = "open-mpi";
int ServeOpenMpiRank();

// Seconds of one all-reduce (a sum of float32, in place) after one to warm up,
// until the last rank has it. The ranks are started for it and end with it:
// waiting, they would not leave the processors alone.
absl::StatusOr<double> OpenMpiAllReduce(int ranks, int64_t bytes);

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_OPEN_MPI_H_
