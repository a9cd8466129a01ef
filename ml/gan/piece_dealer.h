// Deals numbered items to workers in small pieces, so that slow workers get
// fewer. No LibTorch and no calls here: see deal_out.h.

#ifndef MINIRAY_ML_GAN_PIECE_DEALER_H_
#define MINIRAY_ML_GAN_PIECE_DEALER_H_

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace miniray::ml {

// Items [first, first + count).
struct Piece {
  int64_t index = 0;  // Of the pieces, from 0.
  int64_t first = 0;
  int64_t count = 0;
};

// Not thread-safe.
class PieceDealer {
 public:
  struct Options {
    int64_t items = 0;
    int64_t piece_size = 1;  // The last piece may be smaller.
    int workers = 1;
    // Pieces that a worker has at a time. Two: it computes one while the result
    // of the other travels.
    int per_worker = 2;
    // How far dealt pieces may be ahead of the first one that is not done, for
    // who takes results in order and keeps those that come early; 0: any.
    int64_t window = 0;
  };
  struct Deal {
    int worker = 0;
    Piece piece;
  };

  // REQUIRES: items >= 0, all others but window >= 1.
  explicit PieceDealer(const Options& options);

  // Returns the first piece that nobody has, for the living worker that has
  // fewest; nothing if there is none, no worker has room, or the window is
  // full.
  std::optional<Deal> Next();

  // The piece is done.
  void Done(const Deal& deal);

  // The worker has died. It gets no more, and the piece goes to another one.
  // Called for each of its pieces.
  void Lost(const Deal& deal);

  bool complete() const { return done_ == num_pieces_; }
  int64_t num_pieces() const { return num_pieces_; }
  int64_t under_way() const;
  int living() const;

 private:
  struct Worker {
    bool lives = true;
    int pieces = 0;
  };

  const Options options_;
  const int64_t num_pieces_;
  std::vector<Worker> workers_;
  int64_t next_ = 0;            // The first piece that was never dealt.
  std::set<int64_t> returned_;  // Pieces of workers that died.
  std::set<int64_t> dealt_;     // Pieces under way.
  int64_t done_ = 0;
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_PIECE_DEALER_H_
