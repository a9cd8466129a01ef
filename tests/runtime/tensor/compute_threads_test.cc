// Actors of a program with LibTorch: they are ready at once, and compute with
// the threads that they were given.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <iostream>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

class Computer {
 public:
  int64_t Threads() { return at::get_num_threads(); }
  double Multiply(int64_t n) {
    const at::Tensor a = at::ones({n, n});
    return at::matmul(a, a).sum().item<double>();
  }
};
MINIRAY_ACTOR(Computer, Constructor<>, &Computer::Threads, &Computer::Multiply);

constexpr absl::Duration kLong = absl::Seconds(50);

absl::Duration TimeToFirstReply(const Cluster& driver,
                                const ActorOptions& options) {
  const absl::Time start = absl::Now();
  auto actor = driver.CreateActor<Computer>(options);
  EXPECT_TRUE(actor->Call<&Computer::Threads>().Get(kLong).ok());
  return absl::Now() - start;
}

TEST(ComputeThreadsTest, AnActorHasTheThreadsThatItWasGiven) {
  TestCluster cluster({.node_cpus = {8}});
  Cluster driver = cluster.Connect();
  for (const int threads : {1, 2, 3}) {
    auto actor = driver.CreateActor<Computer>(
        {.resources = {.cpu = 1}, .num_threads = threads});
    EXPECT_EQ(*actor->Call<&Computer::Threads>().Get(kLong), threads);
    // Forked from a process that had one thread, it computes with several.
    EXPECT_EQ(*actor->Call<&Computer::Multiply>(200).Get(kLong),
              200.0 * 200 * 200);
  }
  auto by_cpus = driver.CreateActor<Computer>({.resources = {.cpu = 2}});
  EXPECT_EQ(*by_cpus->Call<&Computer::Threads>().Get(kLong), 2);
  auto plain = driver.CreateActor<Computer>(
      {.resources = {.cpu = 0}, .num_threads = 2, .env = {{"A", "b"}}});
  EXPECT_EQ(*plain->Call<&Computer::Threads>().Get(kLong), 2);
  // A concurrency group's threads are others.
  auto beside = driver.CreateActor<Computer>(
      {.resources = {.cpu = 0},
       .num_threads = 2,
       .concurrency_groups = {{.name = "beside", .methods = {"Threads"}}}});
  EXPECT_EQ(*beside->Call<&Computer::Threads>().Get(kLong), 2);
}

TEST(ComputeThreadsTest, AWarmActorAnswersWellWithinASecond) {
  TestCluster cluster({.node_cpus = {8}});
  Cluster driver = cluster.Connect();
  const absl::Duration cold =
      TimeToFirstReply(driver, {.resources = {.cpu = 0}});
  absl::Duration warm = absl::InfiniteDuration(), plain = warm;
  for (int i = 0; i < 5; ++i) {
    warm = std::min(warm, TimeToFirstReply(driver, {.resources = {.cpu = 0}}));
    plain = std::min(plain, TimeToFirstReply(driver, {.resources = {.cpu = 0},
                                                      .env = {{"A", "b"}}}));
  }
  std::cout << "first reply: cold " << cold << ", warm " << warm
            << ", without a template " << plain << "\n";
  EXPECT_LT(warm, absl::Seconds(1));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
