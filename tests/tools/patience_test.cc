#include "tools/cli/patience.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PatienceTest : public ::testing::Test {
 protected:
  absl::Status Silent() {
    return patience_.Failed(absl::UnavailableError("Connection refused"));
  }

  absl::Time now_ = absl::FromUnixSeconds(1700000000);
  bool stopped_ = false;
  std::vector<std::string> said_;
  Patience patience_{
      {.address = "h:1",
       .limit = absl::Seconds(60),
       .stopped = [this] { return stopped_; },
       .say = [this](absl::string_view text) { said_.emplace_back(text); },
       .clock = [this] { return now_; }}};
};

TEST_F(PatienceTest, AnOutageIsToldAtOnceAndHasOneLimit) {
  patience_.Answered();
  EXPECT_THAT(said_, IsEmpty());
  EXPECT_TRUE(Silent().ok());
  EXPECT_THAT(
      said_,
      ElementsAre("the head at h:1 does not answer; waiting for it up to "
                  "60 s"));
  // Whatever is asked meanwhile.
  now_ += absl::Seconds(59);
  EXPECT_TRUE(Silent().ok());
  EXPECT_FALSE(patience_.gave_up());
  now_ += absl::Seconds(1);
  const absl::Status status = Silent();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("waited 60 s: Connection refused"));
  EXPECT_TRUE(patience_.gave_up());
  EXPECT_FALSE(patience_.head_stopped());
  EXPECT_EQ(said_.size(), 1);
}

TEST_F(PatienceTest, TheNextOutageHasItsOwnLimit) {
  EXPECT_TRUE(Silent().ok());
  now_ += absl::Seconds(50);
  patience_.Answered();
  EXPECT_EQ(said_.back(), "the head at h:1 answers again");
  now_ += absl::Seconds(50);
  EXPECT_TRUE(Silent().ok());
  EXPECT_EQ(said_.size(), 3);
}

TEST_F(PatienceTest, TheHeadsOwnWordEndsAnOutage) {
  EXPECT_TRUE(Silent().ok());
  now_ += absl::Seconds(50);
  EXPECT_EQ(patience_.Failed(absl::NotFoundError("no such job")),
            absl::NotFoundError("no such job"));
  EXPECT_TRUE(patience_.has_answered());
  EXPECT_FALSE(patience_.gave_up());
  now_ += absl::Seconds(50);
  EXPECT_TRUE(Silent().ok());
}

TEST_F(PatienceTest, AStoppedHeadIsNotWaitedFor) {
  EXPECT_TRUE(Silent().ok());
  stopped_ = true;
  const absl::Status status = Silent();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("was stopped"));
  EXPECT_TRUE(patience_.gave_up());
  EXPECT_TRUE(patience_.head_stopped());
}

TEST_F(PatienceTest, AHeadThatEndsItsStreamsIsStopped) {
  EXPECT_TRUE(absl::IsFailedPrecondition(
      patience_.Failed(absl::CancelledError("CANCELLED"))));
  EXPECT_TRUE(patience_.head_stopped());
  EXPECT_THAT(said_, IsEmpty());
}

}  // namespace
}  // namespace miniray::cli
