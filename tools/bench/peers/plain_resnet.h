// What a train function's ranks are measured against: processes that train the
// same network with a plain loop of LibTorch's, each by itself.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_PLAIN_RESNET_H_
#define MINIRAY_TOOLS_BENCH_PEERS_PLAIN_RESNET_H_

#include "absl/status/statusor.h"
#include "tools/bench/resnet_work.h"

namespace miniray::bench {

// The role of a process, and what it runs.
inline constexpr char kPlainResNetRole[] = "plain-resnet";
int ServePlainResNet();

// Starts a process of one compute thread for each rank, with the settings of
// memory that actors have; they train at once, and nothing is exchanged.
absl::StatusOr<ResNetPace> TrainPlainResNets(const ResNetWork& work);

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_PLAIN_RESNET_H_
