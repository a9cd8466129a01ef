// Who holds which objects, without gRPC: the order in which messages may come,
// and who ends.

#include "runtime/objects/object_holds.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const ObjectHolder kPutter = {.owner = "putter.0", .job_id = "job-1"};
const ObjectHolder kReader = {.owner = "reader.0", .job_id = "job-2"};
const ObjectHolder kStore = {.store_id = "store-1"};
constexpr char kSource[] = "127.0.0.1:1";

std::vector<ObjectHolds::Wanted> Want(const std::string& id, int64_t turn,
                                      const std::string& source = "") {
  return {{.claim = {id, turn}, .source = source}};
}

ObjectHolds::Answer MustHold(ObjectHolds* holds, const ObjectHolder& holder,
                             const std::vector<ObjectHolds::Wanted>& wanted) {
  auto answer = holds->Hold(holder, wanted);
  EXPECT_THAT(answer, IsOk());
  return answer.ok() ? *std::move(answer) : ObjectHolds::Answer();
}

TEST(ObjectHoldsTest, AnObjectGoesWithItsLastHolder) {
  ObjectHolds holds;
  ASSERT_THAT(holds.Put("o", kPutter), IsOk());
  EXPECT_THAT(MustHold(&holds, kReader, Want("o", 1)).missing, IsEmpty());
  EXPECT_THAT(holds.Release(kPutter, {{"o", 0}}).here, IsEmpty());
  EXPECT_THAT(holds.Release(kPutter, {{"o", 0}}).here, IsEmpty());  // Again.
  EXPECT_TRUE(holds.IsHeld("o"));
  EXPECT_THAT(holds.Release(kReader, {{"o", 1}}).here, ElementsAre("o"));
  EXPECT_FALSE(holds.IsHeld("o"));
  EXPECT_THAT(MustHold(&holds, kReader, Want("o", 2)).missing,
              ElementsAre("o"));
  EXPECT_FALSE(holds.IsHeld("o"));
}

TEST(ObjectHoldsTest, AReleaseThatComesLateEndsNoLaterHold) {
  ObjectHolds holds;
  ASSERT_THAT(holds.Put("o", kPutter), IsOk());
  MustHold(&holds, kPutter, Want("o", 5));
  EXPECT_THAT(holds.Release(kPutter, {{"o", 0}}).here, IsEmpty());
  EXPECT_THAT(holds.Release(kPutter, {{"o", 4}}).here, IsEmpty());
  // An earlier hold that comes late does not undo a later one either.
  MustHold(&holds, kPutter, Want("o", 3));
  EXPECT_THAT(holds.Release(kPutter, {{"o", 4}}).here, IsEmpty());
  EXPECT_THAT(holds.Release(kPutter, {{"o", 5}}).here, ElementsAre("o"));
}

TEST(ObjectHoldsTest, HoldersEndWithTheirProcessOrTheirJob) {
  ObjectHolds holds;
  const ObjectHolder driver = {.job_id = "job-3"};
  ASSERT_THAT(holds.Put("a", kPutter), IsOk());
  ASSERT_THAT(holds.Put("b", kPutter), IsOk());
  ASSERT_THAT(holds.Put("c", driver), IsOk());
  MustHold(&holds, kReader, Want("a", 1));
  EXPECT_THAT(holds.Jobs(), ElementsAre("job-1", "job-2", "job-3"));
  EXPECT_THAT(holds.EndOwner("").here, IsEmpty());
  EXPECT_THAT(holds.EndJob("").here, IsEmpty());
  EXPECT_THAT(holds.EndOwner("putter.0").here, ElementsAre("b"));
  EXPECT_THAT(holds.EndJob("job-1").here, IsEmpty());
  EXPECT_THAT(holds.EndJob("job-2").here, ElementsAre("a"));
  EXPECT_THAT(holds.EndJob("job-3").here, ElementsAre("c"));
  EXPECT_THAT(holds.Jobs(), IsEmpty());
  // What was on its way.
  for (const ObjectHolder& ended : {kPutter, kReader, driver}) {
    EXPECT_THAT(holds.Put("late", ended),
                StatusIs(absl::StatusCode::kFailedPrecondition));
    EXPECT_THAT(holds.Hold(ended, Want("late", 1, kSource)),
                StatusIs(absl::StatusCode::kFailedPrecondition));
  }
  holds.BeginJob("job-3");
  EXPECT_THAT(holds.Put("c", driver), IsOk());
  holds.BeginJob("never ended");
}

TEST(ObjectHoldsTest, ObjectsElsewhereAreClaimedOnceForAllProcesses) {
  ObjectHolds holds;
  const auto first = MustHold(&holds, kReader, Want("o", 1, kSource));
  EXPECT_THAT(first.missing, IsEmpty());
  ASSERT_EQ(first.to_claim.count(kSource), 1u);
  const std::vector<ObjectClaim> claims = first.to_claim.at(kSource);
  ASSERT_EQ(claims.size(), 1u);
  // Who comes before the answer asks too: it may not come.
  const auto second = MustHold(&holds, kPutter, Want("o", 1, kSource));
  ASSERT_EQ(second.to_claim.count(kSource), 1u);
  EXPECT_EQ(second.to_claim.at(kSource)[0].turn, claims[0].turn);
  EXPECT_THAT(holds.Settle(kSource, claims, {}), IsEmpty());
  const ObjectHolder third = {.owner = "third.0"};
  EXPECT_THAT(MustHold(&holds, third, Want("o", 1, kSource)).to_claim,
              IsEmpty());
  EXPECT_THAT(holds.Elsewhere().at(kSource), testing::SizeIs(1));
  // It is not here: nobody can hold it from here but for a process.
  EXPECT_FALSE(holds.IsHeld("o"));
  EXPECT_THAT(MustHold(&holds, kStore, Want("o", 1)).missing, ElementsAre("o"));
  EXPECT_THAT(holds.Renew("store-1", {{"o", 1}}), ElementsAre("o"));

  EXPECT_THAT(holds.Release(kReader, {{"o", 1}}).elsewhere, IsEmpty());
  EXPECT_THAT(holds.EndOwner("putter.0").elsewhere, IsEmpty());
  const auto last = holds.EndOwner("third.0");
  EXPECT_THAT(last.here, IsEmpty());
  ASSERT_EQ(last.elsewhere.count(kSource), 1u);
  EXPECT_EQ(last.elsewhere.at(kSource)[0].turn, claims[0].turn);
  EXPECT_THAT(holds.Elsewhere(), IsEmpty());
  // The next one is a later turn.
  const auto again = MustHold(&holds, kReader, Want("o", 2, kSource));
  EXPECT_GT(again.to_claim.at(kSource)[0].turn, claims[0].turn);
}

TEST(ObjectHoldsTest, ClaimsThatNobodyWantsAnyMoreAreGivenBack) {
  ObjectHolds holds;
  const auto claims =
      MustHold(&holds, kReader, Want("o", 1, kSource)).to_claim.at(kSource);
  holds.EndOwner("reader.0");  // While the source is asked.
  const std::vector<ObjectClaim> unwanted = holds.Settle(kSource, claims, {});
  ASSERT_EQ(unwanted.size(), 1u);
  EXPECT_EQ(unwanted[0].turn, claims[0].turn);
  EXPECT_THAT(holds.Settle(kSource, claims, {"o"}), IsEmpty());
  // What was freed at its source is held nowhere.
  const auto gone =
      MustHold(&holds, kPutter, Want("p", 1, kSource)).to_claim.at(kSource);
  EXPECT_THAT(holds.Settle(kSource, gone, {"p"}), IsEmpty());
  EXPECT_THAT(holds.Elsewhere(), IsEmpty());
}

TEST(ObjectHoldsTest, StoresThatAreSilentForLongHoldNothing) {
  ObjectHolds holds;
  ASSERT_THAT(holds.Put("o", kPutter), IsOk());
  ASSERT_THAT(holds.Put("p", kPutter), IsOk());
  MustHold(&holds, kStore, Want("o", 1));
  MustHold(&holds, kStore, Want("p", 2));
  holds.EndOwner("putter.0");
  for (int i = 0; i < ObjectHolds::kMaxAge; ++i) {
    EXPECT_THAT(holds.AgeStores().here, IsEmpty());
  }
  EXPECT_THAT(holds.Renew("store-1", {{"o", 1}, {"q", 3}}), ElementsAre("q"));
  EXPECT_THAT(holds.AgeStores().here, ElementsAre("p"));
  for (int i = 1; i < ObjectHolds::kMaxAge; ++i) {
    EXPECT_THAT(holds.AgeStores().here, IsEmpty());
  }
  EXPECT_THAT(holds.AgeStores().here, ElementsAre("o"));
}

TEST(ObjectHoldsTest, WhatIsDroppedIsHeldByNobody) {
  ObjectHolds holds;
  ASSERT_THAT(holds.Put("o", kPutter), IsOk());
  MustHold(&holds, kReader, Want("e", 1, kSource));
  holds.Drop({"o", "e", "unknown"});
  EXPECT_FALSE(holds.IsHeld("o"));
  EXPECT_THAT(holds.Elsewhere(), testing::SizeIs(1));
  EXPECT_THAT(holds.EndOwner("putter.0").here, IsEmpty());
  EXPECT_THAT(holds.Put("e", kReader),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(holds.Put("x", {.owner = std::string(1000, 'x')}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace miniray
