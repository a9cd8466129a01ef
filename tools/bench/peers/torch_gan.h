// The mlp GAN in PyTorch as a peer, where a python3 can import it.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_TORCH_GAN_H_
#define MINIRAY_TOOLS_BENCH_PEERS_TORCH_GAN_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/bench/child.h"

namespace miniray::bench {

inline constexpr char kNoTorchGan[] = "PyTorch: not installed";

struct TorchGan {
  std::string version;  // "1.13.0a0"
  // Answers the commands of ServeModels for "mlp_gan", on one compute thread.
  std::unique_ptr<Child> child;
};

// Starts it with the python3 of the path, or Debian's if only that one has
// PyTorch. Returns no child if neither has.
absl::StatusOr<TorchGan> StartTorchGan();

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_TORCH_GAN_H_
