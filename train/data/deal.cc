#include "train/data/deal.h"

#include <algorithm>

namespace miniray::train {
namespace {

void AppendAll(const Places& places, Places* to) {
  for (const ShardRange& range : places.ranges()) to->Append(range);
}

}  // namespace

void Places::Append(ShardRange range) {
  if (range.size() <= 0) return;
  const int64_t end = size() + range.size();
  if (!ranges_.empty() && ranges_.back().end == range.begin) {
    ranges_.back().end = range.end;
    ends_.back() = end;
    return;
  }
  ranges_.push_back(range);
  ends_.push_back(end);
}

int64_t Places::operator[](int64_t i) const {
  const auto which = std::upper_bound(ends_.begin(), ends_.end(), i);
  const ShardRange& range = ranges_[static_cast<size_t>(which - ends_.begin())];
  return range.end - (*which - i);
}

Places Places::Subsequence(ShardRange range) const {
  Places result;
  auto which = static_cast<size_t>(
      std::upper_bound(ends_.begin(), ends_.end(), range.begin) -
      ends_.begin());
  for (int64_t i = range.begin; i < range.end; ++which) {
    const int64_t until = std::min(ends_[which], range.end);
    const int64_t begin = ranges_[which].end - (ends_[which] - i);
    result.Append({begin, begin + (until - i)});
    i = until;
  }
  return result;
}

ShardRange RangeOfRank(int64_t count, int rank, const Deal& deal) {
  const int64_t world = deal.world_size;
  int64_t dealt = count;
  if (deal.tail != Tail::kUneven) {
    dealt -= count % world;
    if (deal.tail == Tail::kPad && dealt < count) dealt += world;
  }
  if (dealt < world) {
    return {std::min<int64_t>(rank, dealt), std::min<int64_t>(rank + 1, dealt)};
  }
  return *ContiguousShard(dealt, rank, deal.world_size);
}

RankOrder::RankOrder(int64_t count, int rank, const Deal& deal)
    : range_(RangeOfRank(count, rank, deal)),
      cursor_(range_.begin),
      random_(EpochSeed(deal.seed, rank)) {
  const int64_t capacity = std::max<int64_t>(deal.shuffle_buffer, 1);
  while (cursor_ < range_.end &&
         static_cast<int64_t>(buffer_.size()) < capacity) {
    buffer_.push_back(cursor_++);
  }
}

RankOrder::Step RankOrder::Next() {
  const auto slot =
      static_cast<size_t>(random_.Below(static_cast<int64_t>(buffer_.size())));
  if (cursor_ < range_.end) {
    buffer_[slot] = cursor_;
    return {.slot = slot, .refill = cursor_++};
  }
  buffer_[slot] = buffer_.back();
  buffer_.pop_back();
  return {.slot = slot, .refill = -1};
}

Places Untaken(const Places& places, const Deal& deal, int64_t taken) {
  const int64_t count = places.size();
  Places untaken;
  int64_t dealt = 0;  // Where the last rank's range ends.
  for (int rank = 0; rank < deal.world_size; ++rank) {
    RankOrder order(count, rank, deal);
    const int64_t draws = std::min(taken, order.remaining());
    for (int64_t i = 0; i < draws; ++i) order.Next();
    std::vector<int64_t> rest = order.buffer();
    std::sort(rest.begin(), rest.end());
    Places numbers;
    for (const int64_t number : rest) numbers.Append({number, number + 1});
    numbers.Append({order.cursor(), order.end()});
    for (const ShardRange& range : numbers.ranges()) {
      const ShardRange own = {range.begin, std::min(range.end, count)};
      if (own.size() <= 0) continue;
      AppendAll(places.Subsequence(own), &untaken);
    }
    dealt = order.end();
  }
  if (dealt < count) AppendAll(places.Subsequence({dealt, count}), &untaken);
  return untaken;
}

}  // namespace miniray::train
