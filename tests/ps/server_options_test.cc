#include "ps/server_options.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::ps {
namespace {

using ::testing::HasSubstr;

constexpr SyncMode kAsync = SyncMode::kAsynchronous;
constexpr StalenessPolicy kDamp = StalenessPolicy::kDamp;

std::string Error(const ServerOptions& options) {
  return std::string(Validate(options).message());
}

TEST(ServerOptionsTest, WhatHasNoEffectIsAnError) {
  EXPECT_TRUE(Validate(ServerOptions()).ok());
  EXPECT_THAT(Error({.max_staleness = 3}), HasSubstr("kAsynchronous only"));
  EXPECT_THAT(Error({.staleness_policy = kDamp}), HasSubstr("kDamp needs"));
  EXPECT_THAT(Error({.mode = kAsync, .staleness_policy = kDamp}),
              HasSubstr("kDamp needs"));
  EXPECT_THAT(Error({.mode = kAsync, .max_staleness = 3}),
              HasSubstr("needs num_workers"));
}

TEST(ServerOptionsTest, NumbersHaveRanges) {
  EXPECT_THAT(Error({.num_workers = -1}), HasSubstr("num_workers = -1"));
  EXPECT_THAT(Error({.mode = kAsync, .max_staleness = -2}),
              HasSubstr("max_staleness = -2"));
  EXPECT_THAT(Error({.num_workers = 501}), HasSubstr("at most 500"));
  EXPECT_THAT(Error({.min_workers = 3, .num_workers = 2}),
              HasSubstr("min_workers = 3: num_workers is 2"));
  EXPECT_TRUE(Validate({.mode = kAsync, .num_workers = 5000}).ok());
  EXPECT_TRUE(Validate({.mode = kAsync, .num_workers = kMaxWorkers}).ok());
  EXPECT_THAT(Error({.mode = kAsync, .num_workers = kMaxWorkers + 1}),
              HasSubstr("to 1048576"));
}

TEST(ServerOptionsTest, PiecesAreForOneServerAndWeightsAsTheyAre) {
  EXPECT_TRUE(Validate({.piece_bytes = 1}).ok());
  EXPECT_TRUE(NeedsExchange({.piece_bytes = 1}));
  EXPECT_FALSE(NeedsExchange({}));
  EXPECT_THAT(Error({.piece_bytes = -1}), HasSubstr("piece_bytes = -1"));
  EXPECT_THAT(Error({.num_shards = 2, .piece_bytes = 1}),
              HasSubstr("several shards"));
  EXPECT_THAT(
      Error({.from_workers = {.method = Compression::kFp16}, .piece_bytes = 1}),
      HasSubstr("compressed weights"));
}

TEST(ServerOptionsTest, WeightsThatOthersNeedAreKept) {
  EXPECT_TRUE(Validate({.keep_weights = false}).ok());
  for (const ServerOptions& options :
       {ServerOptions{.state_dir = "/tmp/x", .keep_weights = false},
        ServerOptions{.num_shards = 2, .keep_weights = false},
        ServerOptions{.piece_bytes = 1, .keep_weights = false},
        ServerOptions{.to_workers = {.method = Compression::kFp16},
        .keep_weights = false}}) {
    EXPECT_THAT(Error(options), HasSubstr("keep_weights = false is not for"));
  }
}

TEST(ServerOptionsTest, NoStalenessIsARound) {
  EXPECT_TRUE(StepsInRounds({}));
  EXPECT_TRUE(
      StepsInRounds({.mode = kAsync, .num_workers = 2, .max_staleness = 0}));
  EXPECT_FALSE(StepsInRounds({.mode = kAsync}));
  EXPECT_FALSE(
      StepsInRounds({.mode = kAsync, .num_workers = 2, .max_staleness = 1}));
  EXPECT_FALSE(StepsInRounds(
      {.mode = kAsync, .max_staleness = 0, .staleness_policy = kDamp}));
}

}  // namespace
}  // namespace miniray::ps
