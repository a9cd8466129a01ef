#include "tools/bench/table.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RowTest, HoldsItsRatioAgainstTheTarget) {
  Row row{.what = "a", .ours = 2, .peer_name = "b", .peer = 4};
  EXPECT_FALSE(row.Held().has_value());
  row.at_most = 0.5;
  EXPECT_EQ(row.Held(), true);
  row.at_most = 0.4;
  EXPECT_EQ(row.Held(), false);
  row.at_most.reset();
  row.at_least = 0.6;
  EXPECT_EQ(row.Held(), false);
}

TEST(RowTest, HoldsItsOwnFigureWhereThereIsNoPeer) {
  Row row{.what = "a", .ours = 0, .at_most = 0};
  EXPECT_EQ(row.Held(), true);
  row.ours = 0.1;
  EXPECT_EQ(row.Held(), false);
}

TEST(RowTest, WhatWasNotMeasuredDoesNotHold) {
  EXPECT_EQ((Row{.what = "a", .at_most = 1}).Held(), false);
  EXPECT_EQ(
      (Row{.what = "a", .ours = 1, .peer_name = "b", .at_most = 1}).Held(),
      false);
}

TEST(TableTest, SaysInBothFormsWhatWasMissed) {
  Table table("try");
  table.Add({.what = "fast", .unit = "ms", .ours = 1, .at_most = 2});
  EXPECT_TRUE(table.Held());
  table.Add({.what = "slow",
             .unit = "ms",
             .ours = 3,
             .peer_name = "peer",
             .peer = 2,
             .at_most = 1});
  EXPECT_FALSE(table.Held());
  table.SetRounds(5, 3);
  EXPECT_THAT(table.Text(), HasSubstr("MISSED"));
  const auto json = nlohmann::json::parse(table.Json());
  EXPECT_EQ(json["rounds"], 5);
  EXPECT_EQ(json["idle_rounds"], 3);
  EXPECT_EQ(json["rows"][0]["held"], true);
  EXPECT_TRUE(json["rows"][0]["ratio"].is_null());
  EXPECT_EQ(json["rows"][1]["held"], false);
  EXPECT_EQ(json["rows"][1]["ratio"], 1.5);
}

TEST(StatisticsTest, MedianAndQuantile) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(Quantile({1, 2, 3, 4}, 0.5), 3);
  EXPECT_EQ(Quantile({1, 2, 3, 4}, 1), 4);
}

TEST(MediansInTurnTest, TakesTurnsAndLeavesTheFirstOut) {
  std::string order;
  double a = 0;
  const auto medians = MediansInTurn(2, {{"a",
                                          [&]() -> absl::StatusOr<double> {
                                            order += 'a';
                                            return a += 10;
                                          }},
                                         {"b", [&]() -> absl::StatusOr<double> {
                                            order += 'b';
                                            return 1;
                                          }}});
  ASSERT_TRUE(medians.ok());
  EXPECT_EQ(order, "ababab");
  EXPECT_THAT(*medians, ElementsAre(25, 1));
}

TEST(MediansInTurnTest, NamesWhatFailed) {
  const auto medians =
      MediansInTurn(1, {{"peer", [&]() -> absl::StatusOr<double> {
                           return absl::UnavailableError("gone");
                         }}});
  EXPECT_THAT(std::string(medians.status().message()), HasSubstr("peer: gone"));
}

}  // namespace
}  // namespace miniray::bench
