// How the records of an epoch are dealt to ranks, and in which order each rank
// takes its own: arithmetic on places, without any records. Not for users.
//
// A place is a record's number in the epoch's order of blocks. A deal cuts a
// sequence of M places into W ranges, one a rank. A rank draws each next place
// out of a buffer of the first ones of its range that it has not taken.

#ifndef MINIRAY_TRAIN_DATA_DEAL_H_
#define MINIRAY_TRAIN_DATA_DEAL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "train/data/epoch_order.h"
#include "train/data/tail.h"
#include "train/sharding.h"

namespace miniray::train {

// Ascending, disjoint ranges of places; none is empty.
class Places {
 public:
  Places() = default;
  explicit Places(int64_t count) { Append({0, count}); }

  // `range` begins at or after the last one's end.
  void Append(ShardRange range);

  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  // Returns the i-th place, i in [0, size()).
  int64_t operator[](int64_t i) const;
  // Returns the i-th places of i in `range`, which is within [0, size()).
  Places Subsequence(ShardRange range) const;
  const std::vector<ShardRange>& ranges() const { return ranges_; }

  friend bool operator==(const Places&, const Places&) = default;

 private:
  std::vector<ShardRange> ranges_;
  std::vector<int64_t> ends_;  // Places in ranges_[0] to [i].
};

struct Deal {
  int world_size = 1;
  Tail tail = Tail::kPad;
  int64_t shuffle_buffer = 0;  // 0 is as 1: in order.
  uint64_t seed = 0;  // Of the epoch and the deal; ranks mix theirs in.

  friend bool operator==(const Deal&, const Deal&) = default;
};

// Returns what is `rank`'s of `count` numbers: ranges that follow each other
// from 0 and differ by one at most, longer ones first. With kPad the last may
// reach beyond `count`, to numbers that stand for the first ones once more;
// with kDrop the last numbers are nobody's.
ShardRange RangeOfRank(int64_t count, int rank, const Deal& deal);

// The order in which a rank takes the numbers of its range.
class RankOrder {
 public:
  RankOrder(int64_t count, int rank, const Deal& deal);

  int64_t remaining() const {
    return static_cast<int64_t>(buffer_.size()) + range_.end - cursor_;
  }

  // What Next() did to the buffer.
  struct Step {
    size_t slot;  // Taken out of there.
    // The number that has come into `slot`, or -1: the last slot's went there,
    // and the buffer is shorter by one.
    int64_t refill;
  };
  // Takes the next number, of which there must be one.
  Step Next();

  // Not taken yet; every number not taken is here or in [cursor, end).
  const std::vector<int64_t>& buffer() const { return buffer_; }
  int64_t cursor() const { return cursor_; }
  int64_t end() const { return range_.end; }

 private:
  ShardRange range_;
  int64_t cursor_;  // The first that has not been in the buffer.
  std::vector<int64_t> buffer_;
  Random random_;
};

// Returns the places that no rank has taken, after each has taken the first
// `taken` (or all) of its range. Places that kDrop left out are among them,
// what kPad repeats is not.
Places Untaken(const Places& places, const Deal& deal, int64_t taken);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_DEAL_H_
