// One rank of a Gloo process group; apart from the rest, because c10d's header
// takes 8 s to compile.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_GLOO_RANK_H_
#define MINIRAY_TOOLS_BENCH_PEERS_GLOO_RANK_H_

#include <cstdint>
#include <memory>
#include <string>

namespace miniray::bench {

// Throws what c10d throws. Not thread-safe.
class GlooRank {
 public:
  // Joins the group; waits for the others. bytes: of its float32 tensor.
  // store_file: how they find each other; the same for all, and new.
  GlooRank(int rank, int size, int64_t bytes, const std::string& store_file);
  ~GlooRank();

  // Fills the tensor and waits until all have.
  void Prepare();
  void AllReduce();
  // Whether the tensor holds the sum of what all had.
  bool Check() const;

 private:
  struct Group;
  const std::unique_ptr<Group> group_;
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_GLOO_RANK_H_
