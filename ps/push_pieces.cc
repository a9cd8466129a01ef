#include "ps/push_pieces.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "ps/await_calls.h"
#include "ps/check_weights.h"
#include "ps/encoded_weights.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

constexpr absl::Duration kReminderPeriod = absl::Seconds(30);

}  // namespace

PushPieces::PushPieces(const std::vector<AnyActorHandle>* workers)
    : workers_(*workers),
      statuses_(workers->size()),
      processes_(workers->size()) {}

PushPieces::~PushPieces() {
  for (const Piece& piece : pieces_) {
    for (const ObjectRef<void>& call : piece.calls) Cancel(call);
  }
}

absl::Status PushPieces::Send(const WeightMessage& piece) {
  MR_ASSIGN_OR_RETURN(const EncodedWeights encoded, EncodedWeights::Of(piece));
  Piece& sent = pieces_.emplace_back();
  sent.bytes = TotalBytes(piece.tensors);
  for (const AnyActorHandle& worker : workers_) {
    sent.calls.push_back(worker.CallByName<void>("ReceiveWeights", encoded));
  }
  return absl::OkStatus();
}

const std::vector<absl::Status>& PushPieces::Await(absl::Time deadline) {
  for (; awaited_ < pieces_.size(); ++awaited_) {
    Piece& piece = pieces_[awaited_];
    std::vector<std::shared_ptr<miniray::internal::CallState>> states;
    for (const ObjectRef<void>& call : piece.calls) {
      states.push_back(call.state());
    }
    std::vector<absl::Status> taken(
        workers_.size(),
        absl::DeadlineExceededError("has not taken the new weights in time"));
    const absl::Status awaited = AwaitCalls(
        states, workers_, "push of weights", kReminderPeriod,
        [&](size_t i) {
          taken[i] = piece.calls[i].Get();
          if (!taken[i].ok()) return absl::OkStatus();
          bytes_ += piece.bytes;
          const std::optional<int32_t> process =
              piece.calls[i].state()->process();
          if (!processes_[i].has_value()) processes_[i] = process;
          if (processes_[i] != process) {
            taken[i] = absl::UnavailableError(
                "has restarted between two pieces of the new weights");
          }
          return absl::OkStatus();
        },
        deadline);
    for (size_t i = 0; i < taken.size(); ++i) {
      statuses_[i].Update(awaited);
      statuses_[i].Update(taken[i]);
    }
  }
  return statuses_;
}

std::vector<ObjectRef<void>> PushPieces::TakeLast() {
  std::vector<ObjectRef<void>> calls = std::move(pieces_.back().calls);
  pieces_.pop_back();
  awaited_ = std::min(awaited_, pieces_.size());
  return calls;
}

}  // namespace miniray::ps
