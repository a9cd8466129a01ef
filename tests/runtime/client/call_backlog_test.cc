#include "runtime/client/call_backlog.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace internal {
namespace {

using ::testing::ElementsAre;

class CallBacklogTest : public ::testing::Test {
 protected:
  PendingCall* Add(const std::string& method, size_t bytes = 1,
                   const std::string& group = "") {
    auto call = std::make_unique<PendingCall>();
    call->method = method;
    call->group = group;
    call->body = absl::Cord(std::string(bytes, 'x'));
    PendingCall* const result = call.get();
    backlog_.Add(std::move(call));
    return result;
  }
  // Sends all that may be sent; keeps them in sent_.
  std::vector<std::string> Send() {
    std::vector<std::string> methods;
    while (const PendingCall* next = backlog_.Next()) {
      methods.push_back(next->method);
      sent_.push_back(backlog_.TakeNext());
      sent_.back()->id = sent_.size();
    }
    return methods;
  }

  CallBacklog backlog_;
  std::vector<std::unique_ptr<PendingCall>> sent_;
};

TEST_F(CallBacklogTest, IsInOrder) {
  Add("a");
  Add("b", 1, "group");
  Add("c");
  EXPECT_EQ(backlog_.size(), 3u);
  EXPECT_THAT(Send(), ElementsAre("a", "b", "c"));
  EXPECT_TRUE(backlog_.empty());
}

TEST_F(CallBacklogTest, ACallThatWaitsForArgumentsHoldsUpItsGroupAlone) {
  backlog_.SetGroups({{"health", "quick"}});
  PendingCall* const waiting = Add("train");
  waiting->draft = std::make_unique<CallDraft>();
  Add("more");
  Add("health");
  Add("other", 1, "quick");
  EXPECT_THAT(Send(), ElementsAre("health", "other"));
  waiting->draft = nullptr;
  EXPECT_THAT(Send(), ElementsAre("train", "more"));
}

TEST_F(CallBacklogTest, AFullGroupHoldsUpItselfAlone) {
  backlog_.SetGroups({{"health", "quick"}});
  for (size_t i = 0; i < CallBacklog::kMaxSentCalls + 2; ++i) Add("train");
  Add("health");
  EXPECT_EQ(Send().size(), CallBacklog::kMaxSentCalls + 1);
  EXPECT_EQ(sent_.back()->method, "health");
  backlog_.Done(*sent_[0]);
  EXPECT_THAT(Send(), ElementsAre("train"));
}

TEST_F(CallBacklogTest, BytesCountButOneCallMayBeLarger) {
  Add("large", CallBacklog::kMaxSentBytes + 1);
  Add("small");
  EXPECT_THAT(Send(), ElementsAre("large"));
  backlog_.Done(*sent_[0]);
  Add("large", CallBacklog::kMaxSentBytes);
  EXPECT_THAT(Send(), ElementsAre("small"));
  backlog_.Done(*sent_[1]);
  EXPECT_THAT(Send(), ElementsAre("large"));
}

TEST_F(CallBacklogTest, WhatWasSentGoesBackToItsPlace) {
  Add("a");
  Add("b", 1, "group");
  Add("c");
  EXPECT_THAT(Send(), ElementsAre("a", "b", "c"));
  Add("d");
  for (; !sent_.empty(); sent_.pop_back()) {
    backlog_.Return(std::move(sent_.back()));
  }
  EXPECT_THAT(Send(), ElementsAre("a", "b", "c", "d"));
  for (const auto& call : sent_) EXPECT_NE(call->id, 0u);
}

TEST_F(CallBacklogTest, RemovesFromAnywhere) {
  Add("a");
  PendingCall* const b = Add("b");
  PendingCall* const c = Add("c");
  Add("d");
  EXPECT_EQ(backlog_.Remove(b)->method, "b");
  EXPECT_EQ(backlog_.Remove(c)->method, "c");
  EXPECT_EQ(backlog_.size(), 2u);
  EXPECT_THAT(Send(), ElementsAre("a", "d"));
  Add("e");
  Add("f", 1, "group");
  Add("g");
  const auto taken = backlog_.RemoveIf(
      [](const PendingCall& call) { return call.method != "g"; });
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0]->method, "e");
  EXPECT_EQ(taken[1]->method, "f");
  EXPECT_THAT(Send(), ElementsAre("g"));
}

TEST_F(CallBacklogTest, GroupsMayBecomeKnownLater) {
  PendingCall* const waiting = Add("train");
  waiting->draft = std::make_unique<CallDraft>();
  Add("health");
  EXPECT_THAT(Send(), ElementsAre());
  backlog_.SetGroups({{"health", "quick"}});
  EXPECT_THAT(Send(), ElementsAre("health"));
}

}  // namespace
}  // namespace internal
}  // namespace miniray
