#include "train/data/deal.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "train/data/epoch_order.h"

namespace miniray::train {
namespace {

using ::testing::ElementsAre;

using Numbers = std::vector<int64_t>;

Numbers All(const Places& places) {
  Numbers all;
  for (int64_t i = 0; i < places.size(); ++i) all.push_back(places[i]);
  return all;
}

// The numbers that a rank takes, in order: kept beside the buffer as the reader
// of records does it.
Numbers Draw(int64_t count, int rank, const Deal& deal, int64_t draws) {
  RankOrder order(count, rank, deal);
  Numbers held = order.buffer();
  Numbers taken;
  for (int64_t i = 0; i < draws && order.remaining() > 0; ++i) {
    const RankOrder::Step step = order.Next();
    taken.push_back(held[step.slot]);
    if (step.refill >= 0) {
      held[step.slot] = step.refill;
    } else {
      held[step.slot] = held.back();
      held.pop_back();
    }
    EXPECT_EQ(held, order.buffer());
  }
  return taken;
}

Numbers DrawAll(int64_t count, int rank, const Deal& deal) {
  return Draw(count, rank, deal, INT64_MAX);
}

TEST(PlacesTest, CountsThroughRangesAndJoinsThoseThatTouch) {
  Places places;
  places.Append({2, 4});
  places.Append({4, 5});
  places.Append({9, 9});
  places.Append({7, 10});
  EXPECT_THAT(places.ranges(),
              ElementsAre(ShardRange{2, 5}, ShardRange{7, 10}));
  EXPECT_THAT(All(places), ElementsAre(2, 3, 4, 7, 8, 9));
}

TEST(PlacesTest, SubsequencesAreThoseOfTheList) {
  Places places;
  for (const ShardRange range :
       {ShardRange{0, 1}, ShardRange{3, 6}, ShardRange{8, 12}}) {
    places.Append(range);
  }
  const Numbers all = All(places);
  for (int64_t begin = 0; begin <= places.size(); ++begin) {
    for (int64_t end = begin; end <= places.size(); ++end) {
      EXPECT_EQ(All(places.Subsequence({begin, end})),
                Numbers(all.begin() + begin, all.begin() + end))
          << begin << " to " << end;
    }
  }
}

TEST(DealTest, EachNumberOnceWhereNothingIsDroppedOrRepeated) {
  for (int64_t count = 0; count <= 23; ++count) {
    for (const int world : {1, 2, 3, 5, 8, 30}) {
      for (const int64_t buffer : {0, 1, 4, 100}) {
        const Deal deal = {.world_size = world,
                           .tail = Tail::kUneven,
                           .shuffle_buffer = buffer,
                           .seed = 3};
        Numbers taken;
        size_t least = 1000, most = 0;
        for (int rank = 0; rank < world; ++rank) {
          const Numbers own = DrawAll(count, rank, deal);
          taken.insert(taken.end(), own.begin(), own.end());
          least = std::min(least, own.size());
          most = std::max(most, own.size());
        }
        std::sort(taken.begin(), taken.end());
        SCOPED_TRACE(absl::StrCat(count, " on ", world));
        EXPECT_EQ(taken, All(Places(count)));
        EXPECT_LE(most - least, 1);
      }
    }
  }
}

TEST(DealTest, PadAndDropGiveEachRankEquallyMany) {
  for (int64_t count = 1; count <= 23; ++count) {
    for (const int world : {1, 2, 3, 5, 8, 30}) {
      SCOPED_TRACE(absl::StrCat(count, " on ", world));
      std::map<int64_t, int> padded, dropped;
      for (int rank = 0; rank < world; ++rank) {
        const Numbers pad =
            DrawAll(count, rank, {.world_size = world, .tail = Tail::kPad});
        EXPECT_EQ(pad.size(), (count + world - 1) / world);
        for (const int64_t i : pad) ++padded[i % count];
        const Numbers drop =
            DrawAll(count, rank, {.world_size = world, .tail = Tail::kDrop});
        EXPECT_EQ(drop.size(), count / world);
        for (const int64_t i : drop) ++dropped[i];
      }
      EXPECT_EQ(padded.size(), count);
      EXPECT_EQ(dropped.size(), count / world * world);
      for (const auto& [number, times] : dropped) EXPECT_EQ(times, 1);
    }
  }
}

TEST(DealTest, TheSameSeedDrawsTheSameAndAnotherDoesNot) {
  const Deal deal = {.shuffle_buffer = 50, .seed = 1};
  Deal other = deal;
  other.seed = 2;
  EXPECT_EQ(DrawAll(100, 0, deal), DrawAll(100, 0, deal));
  EXPECT_NE(DrawAll(100, 0, deal), DrawAll(100, 0, other));
  EXPECT_THAT(DrawAll(4, 0, {.shuffle_buffer = 0, .seed = 1}),
              ElementsAre(0, 1, 2, 3));
}

// Ranks must not all take the same slots.
TEST(DealTest, RanksDrawUnlikeEachOther) {
  const Deal deal = {.world_size = 2, .shuffle_buffer = 50, .seed = 1};
  Numbers second = DrawAll(100, 1, deal);
  for (int64_t& number : second) number -= 50;
  EXPECT_NE(DrawAll(100, 0, deal), second);
}

// A buffer of 8 cannot bring a number forward by more than 8 places, and any
// order would have been likely to.
TEST(DealTest, ARecordIsInTheBufferBeforeItIsTaken) {
  const Numbers taken = DrawAll(1000, 0, {.shuffle_buffer = 8, .seed = 1});
  int64_t moved = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_LT(taken[static_cast<size_t>(i)], i + 8);
    if (taken[static_cast<size_t>(i)] != i) ++moved;
  }
  EXPECT_GT(moved, 500);
}

TEST(DealTest, WhatIsUntakenIsWhatNoRankTook) {
  Places places;  // Such as an earlier deal leaves.
  places.Append({2, 9});
  places.Append({11, 12});
  places.Append({20, 33});
  for (const Tail tail : {Tail::kPad, Tail::kDrop, Tail::kUneven}) {
    for (const int world : {1, 2, 3, 4, 7, 25}) {
      for (const int64_t buffer : {0, 3, 100}) {
        const Deal deal = {.world_size = world,
                           .tail = tail,
                           .shuffle_buffer = buffer,
                           .seed = 9};
        for (int64_t taken = 0; taken <= 22; ++taken) {
          std::set<int64_t> rest;
          for (const int64_t place : All(places)) rest.insert(place);
          for (int rank = 0; rank < world; ++rank) {
            for (const int64_t number :
                 Draw(places.size(), rank, deal, taken)) {
              // Not the repeated ones: their first copies count.
              if (number < places.size()) rest.erase(places[number]);
            }
          }
          EXPECT_EQ(All(Untaken(places, deal, taken)),
                    Numbers(rest.begin(), rest.end()))
              << TailName(tail) << " on " << world << ", buffer " << buffer
              << ", taken " << taken;
        }
      }
    }
  }
}

TEST(EpochOrderTest, SeedsDifferByEachArgument) {
  std::set<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    for (int64_t epoch = 0; epoch < 8; ++epoch) {
      for (int64_t part = 0; part < 8; ++part) {
        seeds.insert(EpochSeed(seed, epoch, part));
      }
    }
  }
  EXPECT_EQ(seeds.size(), 512);
}

// A run that is resumed by a later release goes on in the same order.
TEST(EpochOrderTest, OrdersStayWhatTheyAre) {
  EXPECT_EQ(EpochSeed(7, 3), 11248596980798508817u);
  EXPECT_THAT(DrawOrder(8, EpochSeed(7, 3)),
              ElementsAre(1, 0, 6, 4, 5, 3, 2, 7));
  EXPECT_THAT(DrawAll(8, 0, {.shuffle_buffer = 3, .seed = 7}),
              ElementsAre(0, 2, 3, 1, 5, 7, 4, 6));
}

TEST(EpochOrderTest, EachNumberIsAsLikely) {
  Random random(1);
  std::vector<int> counts(3);
  for (int i = 0; i < 30000; ++i) {
    ++counts.at(static_cast<size_t>(random.Below(3)));
  }
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
}

}  // namespace
}  // namespace miniray::train
