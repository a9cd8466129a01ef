// Actors of a program with LibTorch: they are ready at once, and compute with
// the threads that they were given.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <pthread.h>

#include <algorithm>
#include <iostream>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

// When this process was forked; the end of time in one that was not.
absl::Time forked_at = absl::InfiniteFuture();
const int at_fork =
    pthread_atfork(nullptr, nullptr, [] { forked_at = absl::Now(); });

class Computer {
 public:
  Computer() : ready_after_(absl::Now() - forked_at) {}
  // From the fork until the server listened and the object was made.
  double ReadyAfterMs() { return absl::ToDoubleMilliseconds(ready_after_); }
  int64_t Threads() { return at::get_num_threads(); }
  double Multiply(int64_t n) {
    const at::Tensor a = at::ones({n, n});
    return at::matmul(a, a).sum().item<double>();
  }

 private:
  const absl::Duration ready_after_;
};
MINIRAY_ACTOR(Computer, Constructor<>, &Computer::Threads, &Computer::Multiply,
              &Computer::ReadyAfterMs);

constexpr absl::Duration kLong = absl::Seconds(50);

struct Start {
  absl::Duration first_reply;  // From its creation.
  double ready_after_ms = 0;
};

Start StartOne(const Cluster& driver, const ActorOptions& options) {
  Start start;
  const absl::Time begin = absl::Now();
  auto actor = driver.CreateActor<Computer>(options);
  const auto ready_after = actor->Call<&Computer::ReadyAfterMs>().Get(kLong);
  start.first_reply = absl::Now() - begin;
  EXPECT_TRUE(ready_after.ok()) << ready_after.status();
  start.ready_after_ms = ready_after.value_or(0);
  return start;
}

template <class T>
T Median(std::vector<T> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
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
  const ActorOptions options = {.resources = {.cpu = 0}};
  // With an environment of its own it is started without the template.
  ActorOptions plain_options = options;
  plain_options.env = {{"A", "b"}};
  const absl::Duration cold = StartOne(driver, options).first_reply;
  std::vector<absl::Duration> warm, plain;
  std::vector<double> ready_after;
  for (int i = 0; i < 7; ++i) {
    const Start start = StartOne(driver, options);
    warm.push_back(start.first_reply);
    ready_after.push_back(start.ready_after_ms);
    plain.push_back(StartOne(driver, plain_options).first_reply);
  }
  std::cout << "first reply: cold " << cold << ", warm " << Median(warm)
            << ", without a template " << Median(plain)
            << "; ready after the fork: " << Median(ready_after)
            << " ms, at best "
            << *std::min_element(ready_after.begin(), ready_after.end())
            << " ms\n";
  EXPECT_LT(Median(warm), absl::Seconds(1));
  // Loading LibTorch is what a template saves.
  EXPECT_LT(Median(warm), Median(plain) / 2);
  EXPECT_GT(Median(ready_after), 0);
  EXPECT_LT(absl::Milliseconds(Median(ready_after)), Median(plain) / 2);
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
