// Has workers compute pieces, each a call, until all are done: the next piece
// goes to whoever is free, and those of a worker that dies to the others.

#ifndef MINIRAY_ML_GAN_DEAL_OUT_H_
#define MINIRAY_ML_GAN_DEAL_OUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ml/gan/piece_dealer.h"
#include "runtime/api/miniray.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {

// call: ObjectRef<Result>(int worker, const Piece&), begins to compute a piece.
// take: absl::Status(const Piece&, Result), takes a result, as they come; the
//   next one waits for it.
//
// Errors: UNAVAILABLE, no worker is left. Those of a call, with the worker's
// number, and of take; pieces under way are not waited for then.
template <class Result, class Call, class Take>
absl::Status DealOut(PieceDealer* dealer, const Call& call, const Take& take) {
  struct Running {
    PieceDealer::Deal deal;
    ObjectRef<Result> result;
  };
  std::vector<Running> running;
  absl::Status last_death;
  while (!dealer->complete()) {
    while (const std::optional<PieceDealer::Deal> deal = dealer->Next()) {
      running.push_back({*deal, call(deal->worker, deal->piece)});
    }
    if (running.empty()) {
      return absl::UnavailableError(
          absl::StrCat("no worker is left, all have died; the last one: ",
                       last_death.message()));
    }
    std::vector<ObjectRef<Result>> results;
    for (const Running& one : running) results.push_back(one.result);
    const std::vector<size_t> ready = Wait(results, 1);
    results.clear();
    // From the back, so that the indices stay right.
    for (size_t i = ready.size(); i-- > 0;) {
      Running done = std::move(running[ready[i]]);
      running.erase(running.begin() + static_cast<int64_t>(ready[i]));
      absl::StatusOr<Result> result = std::move(done.result).Get();
      const std::string worker = absl::StrCat("worker ", done.deal.worker);
      if (absl::IsUnavailable(result.status())) {
        last_death = Annotate(result.status(), worker);
        dealer->Lost(done.deal);
        continue;
      }
      MR_RETURN_IF_ERROR(Annotate(result.status(), worker));
      dealer->Done(done.deal);
      MR_RETURN_IF_ERROR(take(done.deal.piece, *std::move(result)));
    }
  }
  return absl::OkStatus();
}

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_DEAL_OUT_H_
