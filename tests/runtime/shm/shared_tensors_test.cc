// Tensors between the processes of one machine: they arrive as they were sent,
// whatever either side does with its own afterwards, and nothing is left of
// them.

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/shm/shared_memory.h"
#include "runtime/tensor/tensor_codec.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

constexpr int64_t kLarge = 1 << 20;  // Of floats: 4 MB.

class Keeper {
 public:
  at::Tensor Make(double value) {
    return at::full({kLarge}, value, at::kFloat);
  }
  at::Tensor Give() const { return kept_; }
  ReadOnly<at::Tensor> Lend() const { return {kept_}; }
  void Keep(at::Tensor tensor) { kept_ = std::move(tensor); }
  void AddToKept(double value) { kept_.add_(value); }
  double Sum(const at::Tensor& tensor) { return tensor.sum().item<double>(); }
  double SumReadOnly(const ReadOnly<at::Tensor>& tensor) {
    return tensor.value.sum().item<double>();
  }
  // Keeps the sender's own memory, and passes that on.
  void KeepLent(const ReadOnly<at::Tensor>& tensor) { lent_ = tensor.value; }
  ReadOnly<at::Tensor> GiveLent() const { return {lent_}; }
  double KeptSum() const { return kept_.sum().item<double>(); }
  // Reads it where it lies: in the node's store.
  absl::StatusOr<double> SumPut(const ObjectRef<ReadOnly<at::Tensor>>& ref) {
    MR_ASSIGN_OR_RETURN(const ReadOnly<at::Tensor> tensor, ref.Get());
    return tensor.value.sum().item<double>();
  }
  int64_t Pid() const { return getpid(); }
  // Bytes of memory that the actor's process took to lend or to copy into.
  int64_t PoolBytes() const {
    return static_cast<int64_t>(SharedMemory::Get().bytes());
  }
  std::vector<at::Tensor> Several() {
    return {at::arange(kLarge), at::full({3}, 7), at::arange(kLarge / 4)};
  }

 private:
  at::Tensor kept_;
  at::Tensor lent_;
};
MINIRAY_ACTOR(Keeper, Constructor<>, &Keeper::Make, &Keeper::Give,
              &Keeper::Lend, &Keeper::Keep, &Keeper::AddToKept, &Keeper::Sum,
              &Keeper::SumPut, &Keeper::PoolBytes, &Keeper::SumReadOnly,
              &Keeper::KeepLent, &Keeper::GiveLent, &Keeper::KeptSum,
              &Keeper::Pid, &Keeper::Several);

class Sender {
 public:
  absl::Status LendTo(ActorHandle<Keeper> keeper, double value) {
    // The first call finds out that memory can be shared.
    MR_RETURN_IF_ERROR(keeper.Call<&Keeper::Pid>().Get().status());
    const at::Tensor tensor = at::full({kLarge}, value, at::kFloat);
    return keeper.Call<&Keeper::KeepLent>(ReadOnly<at::Tensor>{tensor}).Get();
  }
  int64_t Pid() const { return getpid(); }
};
MINIRAY_ACTOR(Sender, Constructor<>, &Sender::LendTo, &Sender::Pid);

// Bytes of this machine's shared memory that the test's own process lends.
uint64_t Lent() { return SharedMemory::Get().bytes(); }

class SharedTensorsTest : public testing::Test {
 protected:
  ActorHandle<Keeper> MakeKeeper(
      const std::map<std::string, std::string>& env = {}) {
    auto keeper =
        cluster_.CreateActor<Keeper>({.resources = {.cpu = 0}, .env = env});
    EXPECT_THAT(keeper, IsOk());
    EXPECT_THAT(keeper->WaitReady(), IsOk());
    // The first call finds out that memory can be shared.
    EXPECT_THAT(keeper->Call<&Keeper::Pid>().Get(), IsOk());
    return *keeper;
  }

  static void Kill(int64_t pid) {
    ASSERT_EQ(kill(static_cast<pid_t>(pid), SIGKILL), 0);
    EXPECT_TRUE(Eventually([pid] { return !ProcessLives(pid); }));
  }

  TestCluster nodes_;
  Cluster cluster_ = nodes_.Connect();
};

TEST_F(SharedTensorsTest, LargeArgumentsGoThroughSharedMemory) {
  auto keeper = MakeKeeper();
  const at::Tensor tensor = at::arange(kLarge).to(at::kFloat);
  const auto sum = keeper.Call<&Keeper::Sum>(tensor).Get();
  ASSERT_THAT(sum, IsOk());
  EXPECT_EQ(*sum, tensor.sum().item<double>());
  EXPECT_GE(Lent(), tensor.nbytes());
  EXPECT_EQ(
      *keeper.Call<&Keeper::SumReadOnly>(ReadOnly<at::Tensor>{tensor}).Get(),
      *sum);
}

TEST_F(SharedTensorsTest, WhatEitherSideWritesStaysThere) {
  auto keeper = MakeKeeper();
  at::Tensor tensor = at::full({kLarge}, 1, at::kFloat);
  ASSERT_THAT(keeper.Call<&Keeper::Keep>(tensor).Get(), IsOk());
  tensor.fill_(5);
  EXPECT_EQ(*keeper.Call<&Keeper::KeptSum>().Get(), kLarge);
  ASSERT_THAT(keeper.Call<&Keeper::AddToKept>(2.0).Get(), IsOk());
  EXPECT_EQ(tensor.sum().item<double>(), 5.0 * kLarge);
  // Memory of the first message must not serve a second one while it is kept.
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(*keeper.Call<&Keeper::Sum>(tensor).Get(), 5.0 * kLarge);
  }
  EXPECT_EQ(*keeper.Call<&Keeper::KeptSum>().Get(), 3.0 * kLarge);

  auto given = keeper.Call<&Keeper::Give>().Get();
  ASSERT_THAT(given, IsOk());
  given->zero_();
  EXPECT_EQ(*keeper.Call<&Keeper::KeptSum>().Get(), 3.0 * kLarge);
  ASSERT_THAT(keeper.Call<&Keeper::AddToKept>(1.0).Get(), IsOk());
  EXPECT_EQ(given->sum().item<double>(), 0);
}

TEST_F(SharedTensorsTest, EachGetOfAResultHasItsOwnTensor) {
  auto keeper = MakeKeeper();
  auto ref = keeper.Call<&Keeper::Make>(3.0);
  at::Tensor first = *ref.Get();
  first.zero_();
  EXPECT_EQ(ref.Get()->sum().item<double>(), 3.0 * kLarge);
}

TEST_F(SharedTensorsTest, ResultsOutliveTheirActor) {
  auto keeper = MakeKeeper();
  std::vector<at::Tensor> results;
  for (int i = 0; i < 4; ++i) {
    results.push_back(*keeper.Call<&Keeper::Make>(i).Get());
  }
  const auto several = keeper.Call<&Keeper::Several>().Get();
  ASSERT_THAT(several, IsOk());
  kill(static_cast<pid_t>(*keeper.Call<&Keeper::Pid>().Get()), SIGKILL);
  ASSERT_TRUE(
      Eventually([&] { return !keeper.Call<&Keeper::Pid>().Get().ok(); }));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(results[i].sum().item<double>(), static_cast<double>(i) * kLarge);
  }
  EXPECT_TRUE(at::equal((*several)[0], at::arange(kLarge)));
  EXPECT_TRUE(at::equal((*several)[1], at::full({3}, 7)));
  EXPECT_TRUE(at::equal((*several)[2], at::arange(kLarge / 4)));
}

TEST_F(SharedTensorsTest, FromActorToActor) {
  auto one = MakeKeeper();
  auto two = MakeKeeper();
  EXPECT_EQ(*two.Call<&Keeper::Sum>(one.Call<&Keeper::Make>(2.0)).Get(),
            2.0 * kLarge);
  ASSERT_THAT(one.Call<&Keeper::Keep>(at::full({kLarge}, 4, at::kFloat)).Get(),
              IsOk());
  const auto lent = one.Call<&Keeper::Lend>().Get();
  ASSERT_THAT(lent, IsOk());
  EXPECT_EQ(*two.Call<&Keeper::SumReadOnly>(*lent).Get(), 4.0 * kLarge);
}

TEST_F(SharedTensorsTest, WhatIsPassedOnIsNotCopied) {
  auto one = MakeKeeper();
  auto two = MakeKeeper();
  auto made = one.Call<&Keeper::Make>(2.0);
  ASSERT_THAT(made.Get(), IsOk());
  const uint64_t before = Lent();
  EXPECT_EQ(*two.Call<&Keeper::Sum>(made).Get(), 2.0 * kLarge);
  EXPECT_EQ(Lent(), before);
  EXPECT_EQ(*two.Call<&Keeper::PoolBytes>().Get(), 0);
}

TEST_F(SharedTensorsTest, WhatIsPassedOnOutlivesItsProducer) {
  auto one = MakeKeeper();
  auto two = MakeKeeper();
  auto made = one.Call<&Keeper::Make>(2.0);
  ASSERT_THAT(made.Get(), IsOk());
  const uint64_t before = Lent();
  Kill(*one.Call<&Keeper::Pid>().Get());
  EXPECT_THAT(two.Call<&Keeper::Sum>(made).Get(), IsOkAndHolds(2.0 * kLarge));
  // It is still the one copy that the producer made.
  EXPECT_LE(Lent(), before);
  EXPECT_EQ(*two.Call<&Keeper::PoolBytes>().Get(), 0);
}

TEST_F(SharedTensorsTest, WhatIsPassedOnOutlivesItsPlaceInThePool) {
  // One tensor has 4: each new one takes the last one's place.
  auto one = MakeKeeper({{"MINIRAY_SHARED_MEMORY_MB", "6"}});
  auto two = MakeKeeper();
  auto made = one.Call<&Keeper::Make>(2.0);
  ASSERT_THAT(made.Get(), IsOk());
  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(one.Call<&Keeper::Make>(5.0).Get(), IsOk());
  }
  EXPECT_GE(*one.Call<&Keeper::PoolBytes>().Get(), 4 << 20);
  EXPECT_LE(*one.Call<&Keeper::PoolBytes>().Get(), 6 << 20);
  EXPECT_THAT(two.Call<&Keeper::Sum>(made).Get(), IsOkAndHolds(2.0 * kLarge));
}

TEST_F(SharedTensorsTest, AnArgumentThatWasKeptIsReturnedAfterItsSendersDeath) {
  auto keeper = MakeKeeper();
  auto other = MakeKeeper();
  auto sender = cluster_.CreateActor<Sender>({.resources = {.cpu = 0}});
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->Call<&Sender::LendTo>(keeper, 3.0).Get(), IsOk());
  Kill(*sender->Call<&Sender::Pid>().Get());
  const auto given = keeper.Call<&Keeper::GiveLent>().Get();
  ASSERT_THAT(given, IsOk());
  EXPECT_EQ(given->value.sum().item<double>(), 3.0 * kLarge);
  // And once more.
  Kill(*keeper.Call<&Keeper::Pid>().Get());
  EXPECT_THAT(other.Call<&Keeper::SumReadOnly>(*given).Get(),
              IsOkAndHolds(3.0 * kLarge));
}

TEST_F(SharedTensorsTest, WhoOnlyReadsWhatWasPutCopiesNothing) {
  auto keeper = MakeKeeper();
  const auto ref =
      cluster_.Put(ReadOnly<at::Tensor>{at::full({kLarge}, 3, at::kFloat)});
  EXPECT_EQ(*keeper.Call<&Keeper::SumPut>(ref).Get(), 3.0 * kLarge);
  EXPECT_EQ(*keeper.Call<&Keeper::PoolBytes>().Get(), 0);
}

TEST_F(SharedTensorsTest, MemoryIsUsedAgainAndBounded) {
  auto keeper = MakeKeeper();
  const at::Tensor tensor = at::full({kLarge}, 1, at::kFloat);
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(*keeper.Call<&Keeper::Sum>(tensor).Get(), kLarge);
  }
  EXPECT_LE(Lent(), 6 * tensor.nbytes());
  // More results than the pool may hold at once all come.
  std::vector<ObjectRef<at::Tensor>> refs;
  for (int i = 0; i < 100; ++i) refs.push_back(keeper.Call<&Keeper::Make>(i));
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(refs[i].Get()->sum().item<double>(),
              static_cast<double>(i) * kLarge);
  }
}

TEST(SharedMemoryFlagTest, ANodesLimitHoldsForItsActors) {
  for (const int64_t limit : {0, 1}) {  // MB; a tensor has 4.
    TestCluster nodes({.configure_node = [&](WorkerDaemon::Options* node) {
      node->shared_memory_mb = limit;
    }});
    Cluster cluster = nodes.Connect();
    auto keeper = cluster.CreateActor<Keeper>({.resources = {.cpu = 0}});
    ASSERT_THAT(keeper, IsOk());
    for (int i = 0; i < 3; ++i) {
      auto tensor = keeper->Call<&Keeper::Make>(3.0).Get();
      ASSERT_THAT(tensor, IsOk());
      EXPECT_EQ(tensor->sum().item<double>(), 3.0 * kLarge);
      ASSERT_THAT(keeper->Call<&Keeper::Keep>(*tensor).Get(), IsOk());
    }
    EXPECT_LE(*keeper->Call<&Keeper::PoolBytes>().Get(), limit << 20);
    // An actor's own environment goes before the node's flag.
    auto other = cluster.CreateActor<Keeper>(
        {.resources = {.cpu = 0}, .env = {{"MINIRAY_SHARED_MEMORY_MB", "64"}}});
    ASSERT_THAT(other, IsOk());
    ASSERT_THAT(other->Call<&Keeper::Pid>().Get(), IsOk());
    ASSERT_THAT(other->Call<&Keeper::Make>(3.0).Get(), IsOk());
    EXPECT_GE(*other->Call<&Keeper::PoolBytes>().Get(), 4 << 20);
  }
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
