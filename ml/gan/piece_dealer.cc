#include "ml/gan/piece_dealer.h"

#include <algorithm>

namespace miniray::ml {

PieceDealer::PieceDealer(const Options& options)
    : options_(options),
      num_pieces_((options.items + options.piece_size - 1) /
                  options.piece_size),
      workers_(static_cast<size_t>(options.workers)) {}

std::optional<PieceDealer::Deal> PieceDealer::Next() {
  if (returned_.empty() && next_ == num_pieces_) return std::nullopt;
  const int64_t index = returned_.empty() ? next_ : *returned_.begin();
  // What is not done and is before `index` is under way.
  if (options_.window > 0 && !dealt_.empty() &&
      index - *dealt_.begin() >= options_.window) {
    return std::nullopt;
  }
  int best = -1;
  for (int i = 0; i < options_.workers; ++i) {
    const Worker& worker = workers_[static_cast<size_t>(i)];
    if (!worker.lives || worker.pieces >= options_.per_worker) continue;
    if (best < 0 ||
        worker.pieces < workers_[static_cast<size_t>(best)].pieces) {
      best = i;
    }
  }
  if (best < 0) return std::nullopt;
  ++workers_[static_cast<size_t>(best)].pieces;
  if (returned_.empty()) {
    ++next_;
  } else {
    returned_.erase(returned_.begin());
  }
  dealt_.insert(index);
  const int64_t first = index * options_.piece_size;
  return Deal{.worker = best,
              .piece = {.index = index,
                        .first = first,
                        .count = std::min(options_.piece_size,
                                          options_.items - first)}};
}

void PieceDealer::Done(const Deal& deal) {
  --workers_[static_cast<size_t>(deal.worker)].pieces;
  dealt_.erase(deal.piece.index);
  ++done_;
}

void PieceDealer::Lost(const Deal& deal) {
  Worker& worker = workers_[static_cast<size_t>(deal.worker)];
  worker.lives = false;
  --worker.pieces;
  dealt_.erase(deal.piece.index);
  returned_.insert(deal.piece.index);
}

int64_t PieceDealer::under_way() const {
  return static_cast<int64_t>(dealt_.size());
}

int PieceDealer::living() const {
  return static_cast<int>(
      std::count_if(workers_.begin(), workers_.end(),
                    [](const Worker& worker) { return worker.lives; }));
}

}  // namespace miniray::ml
