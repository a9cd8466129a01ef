// The peer for synchronisations: LibTorch's own all-reduce, c10d over Gloo,
// between processes of this machine.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_GLOO_H_
#define MINIRAY_TOOLS_BENCH_PEERS_GLOO_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/child.h"

namespace miniray::bench {

// The role of a rank's process, and what it runs.
inline constexpr char kGlooRole[] = "gloo";
int ServeGlooRank();

// A process group, each rank in a process of its own with a float32 tensor.
class GlooGroup {
 public:
  static absl::StatusOr<std::unique_ptr<GlooGroup>> Start(int ranks,
                                                          int64_t bytes);
  ~GlooGroup();

  // Seconds of one all-reduce (a sum, in place), until the last rank has it.
  absl::StatusOr<double> AllReduce();

 private:
  GlooGroup() = default;

  std::string store_file_;
  std::vector<std::unique_ptr<Child>> ranks_;
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_GLOO_H_
