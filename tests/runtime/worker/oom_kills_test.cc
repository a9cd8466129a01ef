#include "runtime/worker/oom_kills.h"

#include <signal.h>
#include <sys/wait.h>

#include <string>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/worker/tight_group.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// As waitpid has them.
constexpr int kKilled = SIGKILL;
constexpr int kAborted = SIGABRT;
constexpr int kExitedWith137 = 137 << 8;

class OomKillsTest : public ::testing::Test {
 protected:
  absl::StatusOr<int64_t> count_ = 7;
  absl::Time now_ = absl::UnixEpoch();
  OomKills kills_{[this] { return count_; }, [this] { return now_; }};
};

TEST_F(OomKillsTest, EachKillExplainsOneEnd) {
  EXPECT_THAT(kills_.Explain(kKilled), IsEmpty());  // There were 7 before.
  count_ = 9;
  EXPECT_THAT(kills_.Explain(kAborted), IsEmpty());
  EXPECT_THAT(kills_.Explain(kExitedWith137), IsEmpty());
  EXPECT_EQ(kills_.explained(), 0);
  EXPECT_THAT(kills_.Explain(kKilled), HasSubstr("the kernel ended a process"));
  EXPECT_EQ(kills_.explained(), 1);
  EXPECT_THAT(kills_.Explain(kKilled), HasSubstr("for memory"));
  EXPECT_THAT(kills_.Explain(kKilled), IsEmpty());
  EXPECT_EQ(kills_.explained(), 2);
}

TEST_F(OomKillsTest, OldKillsExplainNothing) {
  count_ = 8;
  kills_.Look();
  now_ += OomKills::kMemory;
  count_ = 9;
  kills_.Look();
  now_ += absl::Seconds(1);
  EXPECT_THAT(kills_.Explain(kKilled), HasSubstr("kernel"));
  EXPECT_THAT(kills_.Explain(kKilled), IsEmpty());
}

TEST_F(OomKillsTest, WhatNobodySawInTimeExplainsNothing) {
  now_ += absl::Minutes(1);
  count_ = 8;
  EXPECT_THAT(kills_.Explain(kKilled), IsEmpty());
  count_ = 9;
  EXPECT_THAT(kills_.Explain(kKilled), HasSubstr("kernel"));
}

TEST_F(OomKillsTest, AKernelThatDoesNotCountExplainsNothing) {
  count_ = absl::NotFoundError("no oom_kill");
  EXPECT_THAT(kills_.Explain(kKilled), IsEmpty());
  // It is back, and nothing has happened that anybody knows of.
  count_ = 7;
  EXPECT_THAT(kills_.Explain(kKilled), IsEmpty());
  count_ = 8;
  EXPECT_THAT(kills_.Explain(kKilled), HasSubstr("kernel"));
}

TEST(ReadOomKillsTest, ReadsWhatThisKernelCounts) {
  const absl::StatusOr<int64_t> count = ReadOomKills();
  if (absl::IsNotFound(count.status())) GTEST_SKIP() << count.status();
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_GE(*count, 0);
}

TEST(OomKillsOfTheKernelTest, AreToldFromOtherKills) {
  const TightGroup group;
  if (!group.made()) GTEST_SKIP() << TightGroup::kWhyNot;
  OomKills kills;
  const int status = group.KillOne();
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  EXPECT_THAT(kills.Explain(status), HasSubstr("the kernel ended a process"));
  EXPECT_THAT(kills.Explain(status), IsEmpty());
}

}  // namespace
}  // namespace miniray
