// PullPieces: the weights of all workers, piece by piece, while the caller
// works on those that have come.

#ifndef MINIRAY_PS_PULL_PIECES_H_
#define MINIRAY_PS_PULL_PIECES_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "ps/model_cut.h"
#include "ps/pull_weights.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

// So many pieces of each worker are in memory, or on their way to it, beside
// the one that Next returned last.
inline constexpr size_t kPiecesUnderWay = 4;

// Its threads are its own: the caller's use it one at a time.
class PullPieces {
 public:
  // Begins.
  //
  // request: of a pull without a view that needs all workers; its layout is
  //   that of `model`. Samples and buffers come with the first piece.
  // model: the server's; `pieces`: its cut. Both outlive this.
  // id: of the model. PulledWeights::holds_view tells whose weights are moves
  //   of it.
  PullPieces(PullRequest request, const NamedTensors* model,
             const std::vector<ModelPart>* pieces, std::string id);

  // Gives up what has not come.
  ~PullPieces();

  // Returns the next piece, in their order; blocks. REQUIRES: not called more
  // often than there are pieces. Errors: of PullWeightsOf, of any piece.
  absl::StatusOr<PulledWeights> Next() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<PulledWeights> Pull(size_t piece) const;
  void Stop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const PullRequest request_;
  const NamedTensors& model_;
  const std::vector<ModelPart>& pieces_;
  const std::string id_;

  absl::Mutex mu_;
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;   // To be pulled.
  size_t taken_ ABSL_GUARDED_BY(mu_) = 0;  // By Next.
  std::map<size_t, PulledWeights> ready_ ABSL_GUARDED_BY(mu_);
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // Each pulls one piece at a time.
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_PULL_PIECES_H_
