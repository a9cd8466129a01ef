// PushPieces: new weights on their way to all workers, piece by piece.

#ifndef MINIRAY_PS_PUSH_PIECES_H_
#define MINIRAY_PS_PUSH_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ps/weight_message.h"
#include "runtime/api/miniray.h"

namespace miniray::ps {

// Not thread-safe.
class PushPieces {
 public:
  // workers: outlive this.
  explicit PushPieces(const std::vector<AnyActorHandle>* workers);

  // Pieces that a worker has not begun to take by then, it need not take.
  ~PushPieces();
  PushPieces(const PushPieces&) = delete;
  PushPieces& operator=(const PushPieces&) = delete;

  // Returns at once. The tensors must not change any more.
  absl::Status Send(const WeightMessage& piece);

  // Waits until all workers have taken all that was sent so far; logs every
  // 30 s for whom. Returns for each worker, by index, its first error, which
  // does not name it: DEADLINE_EXCEEDED if it has not taken all in time;
  // UNAVAILABLE if it has restarted between two pieces, and lost the first.
  const std::vector<absl::Status>& Await(absl::Time deadline);

  // Of tensors that workers have taken.
  int64_t bytes() const { return bytes_; }

  // The calls that sent the last piece; they are no longer cancelled.
  std::vector<ObjectRef<void>> TakeLast();

 private:
  struct Piece {
    int64_t bytes = 0;
    std::vector<ObjectRef<void>> calls;  // By worker.
  };

  const std::vector<AnyActorHandle>& workers_;
  std::vector<Piece> pieces_;
  size_t awaited_ = 0;  // Of pieces_.
  std::vector<absl::Status> statuses_;
  // By worker: the process that has taken pieces.
  std::vector<std::optional<int32_t>> processes_;
  int64_t bytes_ = 0;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_PUSH_PIECES_H_
