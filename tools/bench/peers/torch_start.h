// Peer and floor of an actor's start: a program with LibTorch that is run, and
// a process with LibTorch that is forked. Each does one tensor operation.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_TORCH_START_H_
#define MINIRAY_TOOLS_BENCH_PEERS_TORCH_START_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "tools/bench/child.h"

namespace miniray::bench {

// One small product of matrices; its sum.
double TorchOperation();

// The roles of the two processes, and what they run.
inline constexpr char kTorchProgramRole[] = "torch-program";
int ServeTorchProgram();
inline constexpr char kTorchTemplateRole[] = "torch-template";
int ServeTorchTemplate();

// Seconds from running this program until it has answered.
absl::StatusOr<double> StartTorchProgram();

// A process with one thread that has LibTorch loaded and used.
class TorchTemplate {
 public:
  static absl::StatusOr<std::unique_ptr<TorchTemplate>> Start();
  // Seconds until a fork of it has answered.
  absl::StatusOr<double> Fork() { return child_->AskNumber("fork"); }

 private:
  explicit TorchTemplate(std::unique_ptr<Child> child)
      : child_(std::move(child)) {}

  const std::unique_ptr<Child> child_;
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_TORCH_START_H_
