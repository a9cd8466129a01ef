#include "runtime/client/link_fallback.h"

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace internal {
namespace {

using ::testing::HasSubstr;

constexpr char kHere[] = "192.0.2.1:4000";
constexpr char kThere[] = "192.0.2.1:4001";
absl::Status Reset() { return absl::UnavailableError("connection reset"); }

class LinkFallbackTest : public testing::Test {
 protected:
  // A link gets its session, and breaks after `lasted`.
  void BreakAfter(absl::Duration lasted, bool replied,
                  const std::string& address = kHere) {
    fallback_.OnSession(now_);
    if (replied) fallback_.OnReply();
    now_ += lasted;
    fallback_.OnBroken(address, now_, Reset());
  }
  bool Avoids(const std::string& address = kHere) const {
    return fallback_.Avoids(address, now_);
  }

  LinkFallback fallback_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
};

TEST_F(LinkFallbackTest, ALinkIsTriedFirst) { EXPECT_FALSE(Avoids()); }

TEST_F(LinkFallbackTest, WhatLeadsNowhereIsAvoidedUntilASessionIsThere) {
  fallback_.OnNoSession(kHere, Reset());
  EXPECT_TRUE(Avoids());
  EXPECT_EQ(fallback_.reason(), Reset());
  EXPECT_FALSE(Avoids(kThere));
  fallback_.OnSession(now_);
  EXPECT_FALSE(Avoids());
}

TEST_F(LinkFallbackTest, WhereGrpcFailsTooTheLinkWasNotAtFault) {
  fallback_.OnNoSession(kHere, Reset());
  fallback_.OnGrpcFailed();
  EXPECT_FALSE(Avoids());
}

TEST_F(LinkFallbackTest, ThreeUselessLinksInARowRest) {
  BreakAfter(absl::Milliseconds(3), false);
  BreakAfter(absl::Seconds(29), false);
  EXPECT_FALSE(Avoids());
  BreakAfter(absl::Milliseconds(3), false);
  EXPECT_TRUE(Avoids());
  EXPECT_FALSE(Avoids(kThere));
  EXPECT_THAT(std::string(fallback_.reason().message()),
              HasSubstr("3 links in a row broke before a reply came, the last "
                        "one: connection reset"));
  // That gRPC carries the session does not end the rest.
  fallback_.OnSession(now_);
  now_ += absl::Seconds(59);
  EXPECT_TRUE(Avoids());
  now_ += absl::Seconds(1);
  EXPECT_FALSE(Avoids());
}

TEST_F(LinkFallbackTest, AfterARestOneMoreUselessLinkIsEnough) {
  for (int i = 0; i < 3; ++i) BreakAfter(absl::Milliseconds(3), false);
  now_ += absl::Minutes(2);
  ASSERT_FALSE(Avoids());
  BreakAfter(absl::Milliseconds(3), false);
  EXPECT_TRUE(Avoids());
  // Unless there was a good one.
  now_ += absl::Minutes(2);
  BreakAfter(absl::Milliseconds(3), true);
  BreakAfter(absl::Milliseconds(3), false);
  BreakAfter(absl::Milliseconds(3), false);
  EXPECT_FALSE(Avoids());
}

TEST_F(LinkFallbackTest, LinksThatBroughtRepliesOrHeldLongDoNotCount) {
  for (int i = 0; i < 5; ++i) {
    BreakAfter(absl::Milliseconds(3), false);
    BreakAfter(absl::Milliseconds(3), false);
    BreakAfter(absl::Milliseconds(3), true);
    EXPECT_FALSE(Avoids());
    BreakAfter(absl::Milliseconds(3), false);
    BreakAfter(absl::Milliseconds(3), false);
    BreakAfter(absl::Seconds(30), false);
    EXPECT_FALSE(Avoids());
  }
}

TEST_F(LinkFallbackTest, AnActorAtAnotherAddressBeginsAnew) {
  BreakAfter(absl::Milliseconds(3), false);
  BreakAfter(absl::Milliseconds(3), false);
  BreakAfter(absl::Milliseconds(3), false, kThere);
  EXPECT_FALSE(Avoids(kHere));
  EXPECT_FALSE(Avoids(kThere));
}

TEST_F(LinkFallbackTest, GrpcThatFailsEndsTheRest) {
  for (int i = 0; i < 3; ++i) BreakAfter(absl::Milliseconds(3), false);
  ASSERT_TRUE(Avoids());
  fallback_.OnGrpcFailed();
  EXPECT_FALSE(Avoids());
}

}  // namespace
}  // namespace internal
}  // namespace miniray
