// Who keeps an object from being freed: processes of the store's node, those of
// other nodes through their stores, drivers.

#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/objects/store_peer.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The Peer's puts are of this holder.
const v1::ObjectHolder kPutter = Process("", "job-1");

bool Empties(const ObjectStore& store) {
  for (int i = 0; i < 15000 && store.stats().objects > 0; ++i) usleep(2000);
  return store.stats().objects == 0;
}

TEST(HoldersTest, AProcessOfTheNodeHolds) {
  auto store = StartStore();
  Peer peer(*store);
  const v1::ObjectHolder reader = Process("reader.0");
  for (const bool dies : {false, true}) {
    ASSERT_THAT(peer.Put("o", "value"), IsOk());
    ASSERT_THAT(peer.Hold(reader, {"o"}, store->address()), IsOk());
    ASSERT_THAT(peer.Release(kPutter, "o", 0), IsOk());
    EXPECT_THAT(peer.Fetch("o"), IsOkAndHolds("value"));
    if (dies) {
      store->EndOwner("reader.0");
    } else {
      ASSERT_THAT(peer.Release(reader, "o"), IsOk());
    }
    EXPECT_EQ(store->stats().bytes, 0);
    EXPECT_THAT(peer.Fetch("o"), StatusIs(absl::StatusCode::kNotFound));
  }
  std::vector<std::string> missing;
  ASSERT_THAT(peer.Hold(Process("late.0"), {"o"}, store->address(), &missing),
              IsOk());
  EXPECT_THAT(missing, ElementsAre("o"));
  EXPECT_THAT(peer.Hold(reader, {"o"}, store->address()),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(peer.Hold({}, {"o"}, store->address()),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(HoldersTest, AnObjectOutlivesItsPutterWhileAnotherJobHoldsIt) {
  auto store = StartStore();
  Peer peer(*store);
  ASSERT_THAT(peer.Put("o", "value", "job-1"), IsOk());
  ASSERT_THAT(peer.Hold(Process("", "job-2"), {"o"}, store->address()), IsOk());
  EXPECT_THAT(store->Jobs(), ElementsAre("job-1", "job-2"));
  store->EndJob("job-1");
  EXPECT_THAT(peer.Fetch("o"), IsOkAndHolds("value"));
  store->EndJob("job-2");
  EXPECT_EQ(store->stats().objects, 0);
  EXPECT_THAT(store->Jobs(), IsEmpty());
}

TEST(HoldersTest, AProcessOfAnotherNodeHoldsThroughItsStore) {
  auto source = StartStore(), node = StartStore();
  Peer peer(*source), remote(*node);
  const v1::ObjectHolder one = Process("one.0"), two = Process("two.0");
  ASSERT_THAT(peer.Put("o", "value"), IsOk());
  ASSERT_THAT(remote.Hold(one, {"o"}, source->address()), IsOk());
  ASSERT_THAT(remote.Hold(two, {"o"}, source->address()), IsOk());
  ASSERT_THAT(peer.Release(kPutter, "o", 0), IsOk());
  ASSERT_THAT(remote.Release(one, "o"), IsOk());
  // Before and after there is a copy.
  EXPECT_EQ(source->stats().objects, 1);
  EXPECT_THAT(remote.Map("o", source->address()), IsOkAndHolds("value"));
  node->EndOwner("two.0");
  EXPECT_TRUE(Empties(*source));
  EXPECT_TRUE(Empties(*node));
  // What is gone is said to be, here too.
  std::vector<std::string> missing;
  ASSERT_THAT(remote.Hold(one, {"o"}, source->address(), &missing), IsOk());
  EXPECT_THAT(missing, ElementsAre("o"));
}

TEST(HoldersTest, ANodeThatIsGoneHoldsNothingAfterAWhile) {
  auto source = StartStore({.check_period = absl::Milliseconds(200)});
  auto living = StartStore({.check_period = absl::Milliseconds(200)});
  auto lost = StartStore({.check_period = absl::Milliseconds(200)});
  Peer peer(*source);
  for (const char* id : {"a", "b"}) ASSERT_THAT(peer.Put(id, "value"), IsOk());
  const v1::ObjectHolder reader = Process("reader.0");
  ASSERT_THAT(Peer(*living).Hold(reader, {"a"}, source->address()), IsOk());
  ASSERT_THAT(Peer(*lost).Hold(reader, {"b"}, source->address()), IsOk());
  for (const char* id : {"a", "b"}) {
    ASSERT_THAT(peer.Release(kPutter, id, 0), IsOk());
  }
  EXPECT_EQ(source->stats().objects, 2);
  lost.reset();  // Without a word.
  for (int i = 0; i < 15000 && source->stats().objects > 1; ++i) usleep(2000);
  EXPECT_EQ(source->stats().objects, 1);
  // The other one has been renewed as long.
  EXPECT_THAT(peer.Fetch("a"), IsOkAndHolds("value"));
  living->EndOwner("reader.0");
  EXPECT_TRUE(Empties(*source));
}

TEST(HoldersTest, ASourceThatDoesNotAnswerHoldsNobodyUp) {
  std::string address;
  {
    auto source = StartStore();
    address = source->address();
  }
  auto node = StartStore({.check_period = absl::Milliseconds(20)});
  const v1::ObjectHolder reader = Process("reader.0");
  std::vector<std::string> missing;
  EXPECT_THAT(Peer(*node).Hold(reader, {"o"}, address, &missing), IsOk());
  EXPECT_THAT(missing, IsEmpty());
  // It is asked for some time.
  EXPECT_THAT(node->Jobs(), ElementsAre("job-1"));
  for (int i = 0; i < 15000 && !node->Jobs().empty(); ++i) usleep(2000);
  EXPECT_THAT(node->Jobs(), IsEmpty());
}

TEST(HoldersTest, ManyReferencesAreOneMessage) {
  auto source = StartStore(), node = StartStore();
  Peer peer(*source), remote(*node);
  std::vector<std::string> ids;
  for (int i = 0; i < 1000; ++i) {
    ids.push_back(absl::StrCat("o", i));
    ASSERT_THAT(peer.Put(ids.back(), "v"), IsOk());
  }
  ASSERT_THAT(remote.Hold(Process("one.0"), ids, source->address()), IsOk());
  for (const std::string& id : ids) {
    ASSERT_THAT(peer.Release(kPutter, id, 0), IsOk());
  }
  EXPECT_EQ(source->stats().objects, 1000);
  node->EndOwner("one.0");
  EXPECT_TRUE(Empties(*source));
}

TEST(HoldersTest, StrangersHoldAndReleaseNothing) {
  auto store = StartStore();
  Peer peer(*store), stranger(*store, "wrong");
  ASSERT_THAT(peer.Put("o", "value"), IsOk());
  EXPECT_THAT(stranger.Hold(Process("x.0"), {"o"}, store->address()),
              StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(stranger.Release(kPutter, "o", 0),
              StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(peer.Fetch("o"), IsOkAndHolds("value"));
  // Nonsense from one that may speak.
  std::vector<std::string> missing;
  EXPECT_THAT(peer.Hold(Process("x.0"), {"p", "o"}, "nowhere", &missing),
              IsOk());
  EXPECT_THAT(missing, ElementsAre("p", "o"));
  EXPECT_THAT(peer.Hold(Process(std::string(1000, 'x')), {"o"}, ""),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(peer.Release(Process("x.0"), "unknown"), IsOk());
  EXPECT_THAT(peer.Fetch("o"), IsOkAndHolds("value"));
}

}  // namespace
}  // namespace miniray
