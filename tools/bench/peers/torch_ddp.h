// PyTorch's DistributedDataParallel as a peer, where a python3 can import
// PyTorch: the same network, batches and steps, under torchrun.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_TORCH_DDP_H_
#define MINIRAY_TOOLS_BENCH_PEERS_TORCH_DDP_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "tools/bench/resnet_work.h"

namespace miniray::bench {

inline constexpr char kNoTorchDdp[] = "PyTorch: not installed";

class TorchDdp {
 public:
  // The python3 of the path, or Debian's if only that one has PyTorch; none if
  // neither has.
  static std::optional<TorchDdp> Find();

  // "1.13.0a0".
  const std::string& version() const { return version_; }

  // Runs torchrun with a process of one compute thread for each rank, over
  // Gloo.
  absl::StatusOr<ResNetPace> Train(const ResNetWork& work) const;

 private:
  TorchDdp(std::string python, std::string version)
      : python_(std::move(python)), version_(std::move(version)) {}

  std::string python_;
  std::string version_;
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_TORCH_DDP_H_
