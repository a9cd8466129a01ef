#include "ml/gan/piece_dealer.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::ml {
namespace {

using ::testing::ElementsAre;

// Takes deals as long as there are some.
std::deque<PieceDealer::Deal> TakeAll(PieceDealer* dealer) {
  std::deque<PieceDealer::Deal> deals;
  while (const auto deal = dealer->Next()) deals.push_back(*deal);
  return deals;
}

TEST(PieceDealerTest, CutsItemsIntoPieces) {
  PieceDealer dealer({.items = 10, .piece_size = 4, .workers = 2});
  EXPECT_EQ(dealer.num_pieces(), 3);
  const auto deals = TakeAll(&dealer);
  ASSERT_EQ(deals.size(), 3u);
  std::vector<int64_t> firsts, counts;
  std::vector<int> workers;
  for (const auto& deal : deals) {
    firsts.push_back(deal.piece.first);
    counts.push_back(deal.piece.count);
    workers.push_back(deal.worker);
  }
  EXPECT_THAT(firsts, ElementsAre(0, 4, 8));
  EXPECT_THAT(counts, ElementsAre(4, 4, 2));
  // One each before one has two.
  EXPECT_THAT(workers, ElementsAre(0, 1, 0));
  EXPECT_FALSE(dealer.complete());
  for (const auto& deal : deals) dealer.Done(deal);
  EXPECT_TRUE(dealer.complete());
  EXPECT_FALSE(dealer.Next().has_value());
}

TEST(PieceDealerTest, NoItemsAreDoneAtOnce) {
  PieceDealer dealer({.items = 0, .workers = 3});
  EXPECT_TRUE(dealer.complete());
  EXPECT_FALSE(dealer.Next().has_value());
}

TEST(PieceDealerTest, NoMoreThanTwoPiecesAWorkerAreUnderWay) {
  PieceDealer dealer({.items = 1000, .piece_size = 1, .workers = 3});
  std::deque<PieceDealer::Deal> running = TakeAll(&dealer);
  EXPECT_EQ(dealer.under_way(), 6);
  int64_t done = 0;
  while (!running.empty()) {
    dealer.Done(running.front());
    running.pop_front();
    ++done;
    for (const auto& deal : TakeAll(&dealer)) running.push_back(deal);
    EXPECT_LE(dealer.under_way(), 6);
  }
  EXPECT_EQ(done, 1000);
  EXPECT_TRUE(dealer.complete());
}

TEST(PieceDealerTest, WhoIsSlowGetsFewer) {
  PieceDealer dealer({.items = 90, .workers = 2, .per_worker = 1});
  PieceDealer::Deal slow = *dealer.Next();
  PieceDealer::Deal fast = *dealer.Next();
  EXPECT_NE(slow.worker, fast.worker);
  std::map<int, int> done;
  // The slow one needs as long for one as the other for eight.
  while (!dealer.complete()) {
    for (int i = 0; i < 8; ++i) {
      dealer.Done(fast);
      ++done[fast.worker];
      const auto next = dealer.Next();
      if (!next.has_value()) break;
      EXPECT_EQ(next->worker, fast.worker);
      fast = *next;
    }
    dealer.Done(slow);
    ++done[slow.worker];
    const auto next = dealer.Next();
    if (!next.has_value()) break;
    slow = *next;
  }
  EXPECT_EQ(done[slow.worker], 10);
  EXPECT_EQ(done[fast.worker], 80);
}

TEST(PieceDealerTest, PiecesOfADeadWorkerGoToTheOthersFirst) {
  PieceDealer dealer({.items = 8, .workers = 2});
  const auto deals = TakeAll(&dealer);  // 0 and 2 to worker 0, 1 and 3 to 1.
  ASSERT_EQ(deals.size(), 4u);
  dealer.Lost(deals[0]);
  dealer.Lost(deals[2]);
  EXPECT_EQ(dealer.living(), 1);
  EXPECT_FALSE(dealer.Next().has_value());  // Worker 1 has no room.
  dealer.Done(deals[1]);
  dealer.Done(deals[3]);
  std::vector<int64_t> pieces;
  while (!dealer.complete()) {
    const auto deal = dealer.Next();
    ASSERT_TRUE(deal.has_value());
    EXPECT_EQ(deal->worker, 1);
    pieces.push_back(deal->piece.index);
    dealer.Done(*deal);
  }
  EXPECT_THAT(pieces, ElementsAre(0, 2, 4, 5, 6, 7));
}

TEST(PieceDealerTest, WithoutWorkersNothingIsDealt) {
  PieceDealer dealer({.items = 3, .workers = 1, .per_worker = 1});
  dealer.Lost(*dealer.Next());
  EXPECT_EQ(dealer.living(), 0);
  EXPECT_EQ(dealer.under_way(), 0);
  EXPECT_FALSE(dealer.Next().has_value());
  EXPECT_FALSE(dealer.complete());
}

TEST(PieceDealerTest, TheWindowKeepsResultsTogether) {
  PieceDealer dealer(
      {.items = 100, .workers = 2, .per_worker = 1, .window = 4});
  const PieceDealer::Deal stuck = *dealer.Next();
  std::vector<int64_t> pieces;
  while (const auto deal = dealer.Next()) {
    pieces.push_back(deal->piece.index);
    dealer.Done(*deal);
  }
  EXPECT_THAT(pieces, ElementsAre(1, 2, 3));
  // The piece that holds the others up is dealt again.
  dealer.Lost(stuck);
  const auto again = dealer.Next();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->piece.index, 0);
  dealer.Done(*again);
  const auto next = dealer.Next();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->piece.index, 4);
}

}  // namespace
}  // namespace miniray::ml
