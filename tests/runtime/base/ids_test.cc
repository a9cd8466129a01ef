#include "runtime/base/ids.h"

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::MatchesRegex;

TEST(IdsTest, NewIdHasThePrefixAndSixteenHexDigits) {
  EXPECT_THAT(NewId("actor"), MatchesRegex("actor-[0-9a-f]{16}"));
  EXPECT_THAT(NewId(""), MatchesRegex("-[0-9a-f]{16}"));
}

TEST(IdsTest, NewTokenHas256Bits) {
  EXPECT_THAT(NewToken(), MatchesRegex("[0-9a-f]{64}"));
}

TEST(IdsTest, EveryDigitOfATokenVaries) {
  std::vector<std::set<char>> seen(64);
  for (int i = 0; i < 200; ++i) {
    const std::string token = NewToken();
    for (size_t j = 0; j < seen.size(); ++j) seen[j].insert(token[j]);
  }
  // 16 values in 200 draws: fewer than 8 has a chance below 1e-50.
  for (const std::set<char>& digits : seen) EXPECT_GE(digits.size(), 8);
}

TEST(IdsTest, IdsOfManyThreadsDiffer) {
  constexpr int kThreads = 4, kEach = 2000;
  std::vector<std::vector<std::string>> ids(kThreads);
  std::vector<std::thread> threads;
  for (auto& mine : ids) {
    threads.emplace_back([&mine] {
      for (int i = 0; i < kEach; ++i) mine.push_back(NewId("x"));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> all;
  for (const auto& mine : ids) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), kThreads * kEach);
}

}  // namespace
}  // namespace miniray
