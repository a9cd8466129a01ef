// RendezvousStore, and RuntimeStore over it.

#include "train/collective/rendezvous_store.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"
#include "torch/csrc/distributed/c10d/PrefixStore.hpp"
#include "train/collective/runtime_store.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using std::chrono::milliseconds;
using Bytes = std::vector<uint8_t>;

// What takes a timeout of minutes otherwise; on a busy machine, too.
constexpr absl::Duration kAtOnce = absl::Seconds(20);

Bytes ToBytes(const std::string& text) {
  return Bytes(text.begin(), text.end());
}

// What `call` throws, as a status.
template <class F>
absl::Status Thrown(F call) {
  try {
    call();
  } catch (const StoreError& error) {
    EXPECT_EQ(error.what(), error.status().ToString());
    return error.status();
  } catch (const StoreTimeout& error) {
    EXPECT_EQ(error.what(), error.status().ToString());
    return error.status();
  }
  return absl::OkStatus();
}

TEST(RendezvousStoreTest, IsATable) {
  RendezvousStore store;
  EXPECT_FALSE(store.Check({"a"}));
  store.Set("a", std::string("1\0\xff", 3));
  EXPECT_THAT(store.Get("a", 1), IsOkAndHolds(std::string("1\0\xff", 3)));
  EXPECT_TRUE(store.Check({"a"}));
  EXPECT_FALSE(store.Check({"a", "b"}));
  EXPECT_EQ(store.NumKeys(), 1);
  EXPECT_TRUE(store.Delete("a"));
  EXPECT_FALSE(store.Delete("a"));
  EXPECT_EQ(store.NumKeys(), 0);
}

TEST(RendezvousStoreTest, CompareSetSetsWhatItExpects) {
  RendezvousStore store;
  EXPECT_EQ(store.CompareSet("a", "x", "new"), "x");
  EXPECT_FALSE(store.Check({"a"}));
  EXPECT_EQ(store.CompareSet("a", "", "1"), "1");
  EXPECT_EQ(store.CompareSet("a", "other", "2"), "1");
  EXPECT_EQ(store.CompareSet("a", "1", "2"), "2");
  EXPECT_THAT(store.Get("a", 1), IsOkAndHolds("2"));
}

TEST(RendezvousStoreTest, AddCounts) {
  RendezvousStore store;
  EXPECT_THAT(store.Add("n", 5), IsOkAndHolds(5));
  EXPECT_THAT(store.Add("n", -7), IsOkAndHolds(-2));
  EXPECT_THAT(store.Get("n", 1), IsOkAndHolds("-2"));
  store.Set("text", "two");
  EXPECT_THAT(store.Add("text", 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("text")));
}

TEST(RendezvousStoreTest, WaitEndsWhenTheLastKeyIsSet) {
  RendezvousStore store;
  absl::Notification done;
  std::thread waiter([&] {
    EXPECT_THAT(store.Wait({"a", "b"}, 20'000), IsOk());
    done.Notify();
  });
  store.Set("a", "");
  EXPECT_FALSE(done.WaitForNotificationWithTimeout(absl::Milliseconds(20)));
  store.Set("b", "");
  waiter.join();
  EXPECT_THAT(store.Wait({"a", "c", "d"}, 5),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("c, d"), Not(HasSubstr("a,")))));
}

TEST(RuntimeStoreTest, IsAStoreOfC10d) {
  TestCluster cluster;
  const Cluster driver = cluster.Connect();
  const auto actor =
      driver.CreateActor<RendezvousStore>(RendezvousStore::Options(2));
  ASSERT_THAT(actor, IsOk());
  auto runtime_store =
      c10::make_intrusive<RuntimeStore>(*actor, milliseconds(20'000));
  // As Gloo uses it.
  c10d::PrefixStore store("gen", runtime_store);
  const Bytes binary = {0, 255, 10, 128};
  store.set("a", binary);
  EXPECT_EQ(store.get("a"), binary);
  EXPECT_EQ(runtime_store->get("gen/a"), binary);
  EXPECT_TRUE(store.check({"a"}));
  EXPECT_FALSE(store.check({"a", "b"}));
  EXPECT_EQ(store.compareSet("a", binary, ToBytes("new")), ToBytes("new"));
  EXPECT_EQ(store.compareSet("a", binary, ToBytes("x")), ToBytes("new"));
  EXPECT_EQ(store.add("n", 4), 4);
  EXPECT_EQ(store.add("n", 2), 6);
  EXPECT_EQ(store.getNumKeys(), 2);
  EXPECT_TRUE(store.deleteKey("a"));
  EXPECT_FALSE(store.deleteKey("a"));
  EXPECT_THAT(
      Thrown([&] { store.set("t", ToBytes("x")), store.add("t", 1); }),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no number")));
}

TEST(RuntimeStoreTest, WaitsAndGivesUp) {
  TestCluster cluster;
  const Cluster driver = cluster.Connect();
  const auto actor =
      driver.CreateActor<RendezvousStore>(RendezvousStore::Options(2));
  ASSERT_THAT(actor, IsOk());
  RuntimeStore store(*actor, milliseconds(50));
  EXPECT_THAT(Thrown([&] { store.wait({"a"}, milliseconds(50)); }),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("wait"), HasSubstr("set a"))));
  EXPECT_THAT(Thrown([&] { store.get("b"); }),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("b")));
  std::thread waiter([&] {
    EXPECT_THAT(Thrown([&] { store.wait({"a"}, milliseconds(20'000)); }),
                IsOk());
  });
  // As many as may wait do, and Set goes through.
  std::vector<ObjectRef<void>> waits;
  for (int i = 0; i < 4; ++i) {
    waits.push_back(actor->Call<&RendezvousStore::Wait>(
        std::vector<std::string>{"a"}, 20'000));
  }
  store.set("a", ToBytes(""));
  waiter.join();
  EXPECT_THAT(GetAll(waits), IsOk());
}

TEST(RuntimeStoreTest, AbortAndDeathEndWaits) {
  TestCluster cluster;
  const Cluster driver = cluster.Connect();
  auto actor = driver.CreateActor<RendezvousStore>(RendezvousStore::Options(2));
  ASSERT_THAT(actor, IsOk());
  ASSERT_THAT(actor->WaitReady(), IsOk());
  RuntimeStore aborted(*actor, milliseconds(60'000));
  RuntimeStore bereft(*actor, milliseconds(60'000));
  absl::Time called_off = absl::InfiniteFuture();
  absl::Time killed = absl::InfiniteFuture();
  std::thread first([&] {
    EXPECT_THAT(Thrown([&] { aborted.wait({"never"}); }),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("rank 3 died")));
    EXPECT_LT(absl::Now() - called_off, kAtOnce);
  });
  std::thread second([&] {
    EXPECT_THAT(Thrown([&] { bereft.wait({"never"}); }),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("rendezvous store"),
                               HasSubstr("RendezvousStore"))));
    EXPECT_LT(absl::Now() - killed, absl::Seconds(5));
  });
  called_off = absl::Now();
  aborted.Abort(absl::AbortedError("rank 3 died"));
  first.join();
  EXPECT_THAT(Thrown([&] { aborted.set("a", std::vector<uint8_t>()); }),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("rank 3 died")));
  killed = absl::Now();
  EXPECT_THAT(actor->Kill(), IsOk());
  second.join();
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
