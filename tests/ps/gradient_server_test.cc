// The server's part that takes gradients, in this process; workers are threads.

#include "ps/gradient_server.h"

#include <cmath>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/gradient_strategy.h"
#include "ps/strategy_registry.h"
#include "tests/ps/strategy_testutil.h"

namespace miniray::ps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SyncMode kAsync = SyncMode::kAsynchronous;

// A server with a strategy of its own.
struct Server {
  explicit Server(const ServerOptions& options,
                  absl::string_view strategy = "sgd",
                  const StrategyOptions& strategy_options = {{"lr", 1}})
      : optimizer(Create(strategy, strategy_options)),
        gradients(dynamic_cast<GradientStrategy*>(optimizer.get()),
                  {.name = "sgd", .options = {}, .text = "sgd"}, options) {
    EXPECT_TRUE(Validate(options).ok()) << Validate(options);
  }
  std::unique_ptr<SyncStrategy> optimizer;
  GradientServer gradients;
};

// Takes the gradients off, as "sgd" with a lr of 1; a test has it wait or fail.
class MoodyStrategy : public GradientStrategy {
 public:
  absl::StatusOr<NamedTensors> Step(
      absl::Span<const Contribution> contributions, double) override {
    if (in_step) in_step();
    const Contribution& first = contributions.front();
    NamedTensors next = first.tensors;
    for (size_t i = 0; i < next.size(); ++i) {
      at::Tensor& tensor = next[i].second;
      if (!(*first.info)[i].is_buffer) tensor = weights_[i].second.sub(tensor);
    }
    weights_ = next;
    return next;
  }
  void Reset(const NamedTensors& weights) override {
    ThrowIfIn("Reset");
    weights_ = weights;
  }
  absl::StatusOr<StrategyState> SaveState() const override {
    ThrowIfIn("SaveState");
    return StrategyState();
  }

  std::function<void()> in_step;
  std::string throws_in;

 private:
  void ThrowIfIn(const std::string& method) const {
    if (throws_in == method) throw std::runtime_error("out of luck");
  }
  NamedTensors weights_;
};
MINIRAY_SYNC_STRATEGY("moody", MoodyStrategy);

MoodyStrategy& Moody(Server& server) {
  return dynamic_cast<MoodyStrategy&>(*server.optimizer);
}

NamedTensors One(const std::vector<float>& values) {
  return {{"w", Floats(values)}};
}

// Weights of (1, -2), at version 1.
void Begin(Server& server, const NamedTensors& weights = One({1, -2})) {
  const auto version = server.gradients.Start(weights, std::nullopt);
  ASSERT_TRUE(version.ok()) << version.status();
  ASSERT_EQ(*version, 1);
}

std::vector<double> Weights(const PushReply& reply) {
  return Values(reply.model.weights.value.at(0).second);
}

std::vector<double> Weights(const Server& server) {
  return Values(server.gradients.Snapshot()->weights.at(0).second);
}

// A push of a worker that another thread waits for.
class PushInThread {
 public:
  PushInThread(Server& server, NamedTensors gradients, int64_t version,
               PushId id)
      : thread_([this, &server, gradients, version, id] {
          reply_ = server.gradients.Push(gradients, version, id);
          done_.Notify();
        }) {}
  ~PushInThread() { thread_.join(); }

  bool done() const { return done_.HasBeenNotified(); }
  const absl::StatusOr<PushReply>& Get() {
    done_.WaitForNotification();
    return reply_;
  }

 private:
  absl::Notification done_;
  absl::StatusOr<PushReply> reply_;
  std::thread thread_;
};

// Until the server's clocks are these.
bool EventuallyClocks(const Server& server,
                      const std::vector<int64_t>& clocks) {
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (absl::Now() < deadline) {
    std::vector<int64_t> now;
    for (const WorkerClock& clock : server.gradients.GetStats().clocks) {
      now.push_back(clock.clock);
    }
    if (now == clocks) return true;
    std::this_thread::yield();
  }
  return false;
}

TEST(GradientServerTest, AsynchronouslyEachGradientIsAStep) {
  Server server({.mode = kAsync});
  Begin(server);
  auto reply = server.gradients.Push(One({0.5, -1}), 1, {0, 1});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->accepted);
  EXPECT_EQ(reply->staleness, 0);
  EXPECT_EQ(reply->model.version, 2);
  EXPECT_THAT(Weights(*reply), ElementsAre(0.5, -1));
  // Another worker's, computed with the first weights.
  reply = server.gradients.Push(One({0.25, 1}), 1, {1, 1});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->staleness, 1);
  EXPECT_EQ(reply->lr_scale, 1);
  EXPECT_THAT(Weights(*reply), ElementsAre(0.25, -2));
  const GradientStats stats = server.gradients.GetStats();
  EXPECT_EQ(stats.accepted, 2);
  EXPECT_EQ(stats.steps, 2);
  EXPECT_THAT(stats.staleness, ElementsAre(1, 1));
}

TEST(GradientServerTest, OldGradientsAreDamped) {
  Server server({.mode = kAsync,
                 .max_staleness = 1,
                 .staleness_policy = StalenessPolicy::kDamp});
  Begin(server, One({0}));
  for (int64_t i = 1; i <= 4; ++i) {
    ASSERT_TRUE(server.gradients.Push(One({1}), i, {0, i}).ok());
  }
  EXPECT_THAT(Weights(server), ElementsAre(-4));
  // Version 5 against 1: 4 old, 3 more than 1.
  const auto reply = server.gradients.Push(One({8}), 1, {1, 1});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->staleness, 4);
  EXPECT_EQ(reply->lr_scale, 0.25);
  EXPECT_THAT(Weights(*reply), ElementsAre(-6));
  const GradientStats stats = server.gradients.GetStats();
  EXPECT_EQ(stats.damped, 1);
  EXPECT_THAT(stats.staleness, ElementsAre(4, 0, 0, 0, 1));
}

TEST(GradientServerTest, TheFastestWaitsForTheSlowest) {
  Server server({.mode = kAsync, .num_workers = 2, .max_staleness = 1});
  Begin(server, One({0}));
  ASSERT_TRUE(server.gradients.Push(One({1}), 1, {0, 1}).ok());
  PushInThread fast(server, One({1}), 2, {0, 2});
  // It is taken at once, and seen; only the reply waits.
  ASSERT_TRUE(EventuallyClocks(server, {2, 0}));
  EXPECT_FALSE(fast.done());
  EXPECT_THAT(Weights(server), ElementsAre(-2));
  EXPECT_TRUE(server.gradients.Pull().ok());
  const auto slow = server.gradients.Push(One({4}), 1, {1, 1});
  ASSERT_TRUE(slow.ok()) << slow.status();
  EXPECT_EQ(slow->staleness, 2);
  ASSERT_TRUE(fast.Get().ok());
  // With what the slowest has done.
  EXPECT_THAT(Weights(*fast.Get()), ElementsAre(-6));
  EXPECT_GT(server.gradients.GetStats().seconds_waited, 0);
}

TEST(GradientServerTest, ARoundAveragesAndGivesAllTheSame) {
  Server server({.num_workers = 3});
  Begin(server);
  PushInThread a(server, One({1, 0}), 1, {0, 1});
  PushInThread b(server, One({2, 0}), 1, {1, 1});
  PushInThread c(server, One({6, 3}), 1, {2, 1});
  for (PushInThread* push : {&a, &b, &c}) {
    const auto& reply = push->Get();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_TRUE(reply->accepted);
    EXPECT_EQ(reply->model.version, 2);
    EXPECT_THAT(Weights(*reply), ElementsAre(-2, -3));
  }
  const GradientStats stats = server.gradients.GetStats();
  EXPECT_EQ(stats.accepted, 3);
  EXPECT_EQ(stats.steps, 1);
  EXPECT_THAT(stats.staleness, ElementsAre(3));
}

// A gradient of each worker and round, with no round numbers in it.
NamedTensors Gradient(const NamedTensors& weights, int worker, int round) {
  std::vector<float> values;
  for (int64_t i = 0; i < weights[0].second.numel(); ++i) {
    values.push_back(0.3f * weights[0].second.data_ptr<float>()[i] +
                     std::sin(static_cast<float>(i * 7 + worker * 3 + round)));
  }
  return One(values);
}

NamedTensors Train(const ServerOptions& options, int num_workers, int rounds) {
  Server server(options, "adamw", {});
  std::vector<float> start;
  for (int i = 0; i < 1000; ++i) start.push_back(std::cos(float(i)));
  Begin(server, One(start));
  std::vector<std::thread> workers;
  for (int worker = 0; worker < num_workers; ++worker) {
    workers.emplace_back([&, worker] {
      VersionedWeights model = server.gradients.Pull()->model;
      for (int round = 0; round < rounds; ++round) {
        const auto reply =
            server.gradients.Push(Gradient(model.weights.value, worker, round),
                                  model.version, {worker, round + 1});
        ASSERT_TRUE(reply.ok()) << reply.status();
        model = reply->model;
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  return server.gradients.Snapshot()->weights;
}

TEST(GradientServerTest, NoStalenessIsSynchronousToTheBit) {
  constexpr int kWorkers = 3, kRounds = 20;
  const NamedTensors synchronous =
      Train({.num_workers = kWorkers}, kWorkers, kRounds);
  const NamedTensors bounded =
      Train({.mode = kAsync, .num_workers = kWorkers, .max_staleness = 0},
            kWorkers, kRounds);
  EXPECT_TRUE(SameBits(synchronous[0].second, bounded[0].second));
  // And both are what the server does when it pulls the gradients itself.
  const auto optimizer = Create("adamw", {});
  std::vector<float> start;
  for (int i = 0; i < 1000; ++i) start.push_back(std::cos(float(i)));
  NamedTensors weights = One(start);
  optimizer->Reset(weights);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<NamedTensors> gradients;
    for (int worker = 0; worker < kWorkers; ++worker) {
      gradients.push_back(Gradient(weights, worker, round));
    }
    weights = AggregateModel(*optimizer, Contributions(gradients));
  }
  EXPECT_TRUE(SameBits(bounded[0].second, weights[0].second));
}

TEST(GradientServerTest, OneAsynchronousWorkerIsPlainTraining) {
  const NamedTensors alone = Train({.mode = kAsync}, 1, 30);
  const NamedTensors round = Train({.num_workers = 1}, 1, 30);
  EXPECT_TRUE(SameBits(alone[0].second, round[0].second));
}

TEST(GradientServerTest, AGradientThatComesAgainIsNotUsedAgain) {
  Server server({.mode = kAsync});
  Begin(server, One({0}));
  ASSERT_TRUE(server.gradients.Push(One({1}), 1, {0, 1}).ok());
  const auto again = server.gradients.Push(One({1}), 1, {0, 1});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->repeated);
  EXPECT_FALSE(again->accepted);
  EXPECT_EQ(again->model.version, 2);
  EXPECT_THAT(Weights(*again), ElementsAre(-1));
  EXPECT_EQ(server.gradients.GetStats().repeated, 1);
  // Nor in a round that is still open.
  Server rounds({.num_workers = 2});
  Begin(rounds, One({0}));
  PushInThread first(rounds, One({1}), 1, {0, 1});
  PushInThread second(rounds, One({1}), 1, {0, 1});
  ASSERT_TRUE(rounds.gradients.Push(One({3}), 1, {1, 1}).ok());
  ASSERT_TRUE(first.Get().ok());
  ASSERT_TRUE(second.Get().ok());
  EXPECT_THAT(Weights(rounds), ElementsAre(-2));
}

TEST(GradientServerTest, WhatDoesNotFitIsAnErrorThatNamesWorkerAndTensor) {
  Server server({.mode = kAsync, .num_workers = 3});
  EXPECT_EQ(server.gradients.Push(One({1, 1}), 1, {0, 1}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  Begin(server);
  const auto error = [&](NamedTensors gradients, int64_t version, PushId id) {
    return server.gradients.Push(std::move(gradients), version, id)
        .status()
        .ToString();
  };
  EXPECT_THAT(error(One({1, 2, 3}), 1, {2, 1}),
              AllOf(HasSubstr("INVALID_ARGUMENT"),
                    HasSubstr("worker 2: 'w' is Float [3], expected Float [2] "
                              "as in the parameter server")));
  EXPECT_THAT(error({{"v", Floats({1, 2})}}, 1, {0, 1}),
              HasSubstr("worker 0: tensor 0 is 'v', expected 'w'"));
  EXPECT_THAT(error({}, 1, {0, 1}), HasSubstr("has no tensors"));
  EXPECT_THAT(error(One({1, NAN}), 1, {1, 1}),
              AllOf(HasSubstr("worker 1: 'w'"), HasSubstr("flat index 1")));
  EXPECT_THAT(error(One({1, 1}), 2, {1, 1}),
              AllOf(HasSubstr("OUT_OF_RANGE"),
                    HasSubstr("worker 1: its gradient is of version 2 of the "
                              "weights, and the server's is 1")));
  EXPECT_THAT(error(One({1, 1}), 0, {1, 1}), HasSubstr("version 0"));
  EXPECT_THAT(error(One({1, 1}), 1, {3, 1}), HasSubstr("from 0 to 2"));
  EXPECT_THAT(error(One({1, 1}), 1, {-1, 1}), HasSubstr("worker -1"));
  EXPECT_THAT(error(One({1, 1}), 1, {1, 0}), HasSubstr("begin with 1"));
  EXPECT_EQ(server.gradients.GetStats().refused, 6);
  EXPECT_EQ(server.gradients.Snapshot()->version, 1);
}

TEST(GradientServerTest, ANonFiniteGradientCanBeLeftOut) {
  Server server({.non_finite = NonFinitePolicy::kDropWorker, .mode = kAsync});
  Begin(server);
  const auto reply = server.gradients.Push(One({1, NAN}), 1, {0, 1});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_FALSE(reply->accepted);
  EXPECT_THAT(Weights(*reply), ElementsAre(1, -2));
  EXPECT_EQ(server.gradients.GetStats().refused, 1);
  // In a round the others go on.
  Server rounds({.non_finite = NonFinitePolicy::kDropWorker, .num_workers = 2});
  Begin(rounds);
  PushInThread bad(rounds, One({INFINITY, 0}), 1, {0, 1});
  const auto good = rounds.gradients.Push(One({1, 1}), 1, {1, 1});
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_TRUE(good->accepted);
  ASSERT_TRUE(bad.Get().ok());
  EXPECT_FALSE(bad.Get()->accepted);
  EXPECT_THAT(Weights(*bad.Get()), ElementsAre(0, -3));
}

TEST(GradientServerTest, AStepThatOverflowsIsRefused) {
  Server server({.mode = kAsync}, "sgd", {{"lr", 1e30}});
  Begin(server);
  const auto reply = server.gradients.Push(One({1e20f, 0}), 1, {0, 1});
  EXPECT_THAT(reply.status().ToString(), HasSubstr("infinite or NaN"));
  EXPECT_THAT(Weights(server), ElementsAre(1, -2));
  EXPECT_EQ(server.gradients.GetStats().refused, 1);
  EXPECT_TRUE(server.gradients.Push(One({0, 0}), 1, {0, 1})->accepted);
}

TEST(GradientServerTest, ALateWorkerFailsTheRoundOrIsDropped) {
  Server strict({.sync_timeout_seconds = 0.1, .num_workers = 3});
  Begin(strict);
  PushInThread other(strict, One({1, 1}), 1, {1, 1});
  const auto failed = strict.gradients.Push(One({1, 1}), 1, {0, 1});
  EXPECT_THAT(failed.status().ToString(),
              AllOf(HasSubstr("DEADLINE_EXCEEDED"),
                    HasSubstr("worker 0 has waited 100ms for"),
                    HasSubstr("worker 2 (0 gradients)")));
  EXPECT_FALSE(other.Get().ok());
  EXPECT_EQ(strict.gradients.Snapshot()->version, 1);

  Server lenient(
      {.min_workers = 2, .sync_timeout_seconds = 1, .num_workers = 3});
  Begin(lenient);
  PushInThread a(lenient, One({1, 1}), 1, {0, 1});
  PushInThread b(lenient, One({3, 1}), 1, {1, 1});
  ASSERT_TRUE(a.Get().ok()) << a.Get().status();
  ASSERT_TRUE(b.Get().ok()) << b.Get().status();
  EXPECT_THAT(Weights(lenient), ElementsAre(-1, -3));
  EXPECT_EQ(lenient.gradients.GetStats().dropped_workers, 1);
  EXPECT_THAT(lenient.gradients.Warnings(),
              ElementsAre(HasSubstr("for worker 2 (0 gradients): it goes on")));
  // The late one learns where the others are, and takes part again.
  const auto late = lenient.gradients.Push(One({9, 9}), 1, {2, 1});
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_FALSE(late->accepted);
  EXPECT_EQ(late->model.version, 2);
  EXPECT_THAT(Weights(*late), ElementsAre(-1, -3));
  PushInThread c(lenient, One({1, 0}), 2, {0, 2});
  PushInThread d(lenient, One({1, 0}), 2, {1, 2});
  ASSERT_TRUE(lenient.gradients.Push(One({4, 0}), 2, {2, 2})->accepted);
  EXPECT_THAT(Weights(lenient), ElementsAre(-3, -3));
}

TEST(GradientServerTest, ADeadSlowestWorkerIsNotWaitedForForEver) {
  Server strict({.sync_timeout_seconds = 1,
                 .mode = kAsync,
                 .num_workers = 2,
                 .max_staleness = 1});
  Begin(strict, One({0}));
  ASSERT_TRUE(strict.gradients.Push(One({1}), 1, {0, 1}).ok());
  const auto failed = strict.gradients.Push(One({1}), 2, {0, 2});
  EXPECT_THAT(failed.status().ToString(),
              AllOf(HasSubstr("DEADLINE_EXCEEDED"),
                    HasSubstr("worker 1 (0 gradients)")));
  // It was used all the same; sent again, it goes on waiting.
  EXPECT_THAT(Weights(strict), ElementsAre(-2));
  PushInThread again(strict, One({1}), 2, {0, 2});
  ASSERT_TRUE(strict.gradients.Push(One({1}), 1, {1, 1}).ok());
  ASSERT_TRUE(again.Get().ok()) << again.Get().status();
  EXPECT_TRUE(again.Get()->repeated);
  EXPECT_THAT(Weights(strict), ElementsAre(-3));

  Server lenient({.min_workers = 1,
                  .sync_timeout_seconds = 0.1,
                  .mode = kAsync,
                  .num_workers = 2,
                  .max_staleness = 1});
  Begin(lenient, One({0}));
  for (int64_t i = 1; i <= 5; ++i) {
    const auto reply = lenient.gradients.Push(One({1}), i, {0, i});
    ASSERT_TRUE(reply.ok()) << reply.status();
  }
  EXPECT_EQ(lenient.gradients.GetStats().dropped_workers, 1);
  EXPECT_THAT(lenient.gradients.Warnings(), ElementsAre(HasSubstr("worker 1")));
}

TEST(GradientServerTest, WhoLeavesIsNotWaitedFor) {
  Server rounds({.num_workers = 2});
  Begin(rounds, One({0}));
  PushInThread last(rounds, One({1}), 1, {0, 1});
  ASSERT_TRUE(rounds.gradients.Leave(1).ok());
  ASSERT_TRUE(last.Get().ok()) << last.Get().status();
  EXPECT_THAT(Weights(*last.Get()), ElementsAre(-1));
  Server server({.mode = kAsync, .num_workers = 2, .max_staleness = 1});
  Begin(server, One({0}));
  ASSERT_TRUE(server.gradients.Push(One({1}), 1, {0, 1}).ok());
  PushInThread fast(server, One({1}), 2, {0, 2});
  ASSERT_TRUE(EventuallyClocks(server, {2, 0}));
  ASSERT_TRUE(server.gradients.Leave(1).ok());
  ASSERT_TRUE(fast.Get().ok()) << fast.Get().status();
}

TEST(GradientServerTest, TheFirstToJoinBringsTheStart) {
  Server server({.mode = kAsync});
  auto first = server.gradients.Join(1, One({5}), {});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->model.version, 1);
  EXPECT_EQ(first->last_sequence, 0);
  ASSERT_TRUE(server.gradients.Push(One({1}), 1, {1, 1}).ok());
  const auto second = server.gradients.Join(0, One({7}), {});
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->model.version, 2);
  EXPECT_THAT(Values(second->model.weights.value[0].second), ElementsAre(4));
  // One that restarts learns where it was.
  EXPECT_EQ(server.gradients.Join(1, One({0}), {})->last_sequence, 1);
  EXPECT_THAT(server.gradients.Join(0, One({1, 2}), {}).status().ToString(),
              HasSubstr("worker 0: 'w' is Float [2]"));
}

TEST(GradientServerTest, BuffersMayComeOrBeLeftOut) {
  Server server({.mode = kAsync});
  const auto model = [](float w, float mean, int64_t n, float v) {
    return NamedTensors{{"w", Floats({w})},
                        {"mean", Floats({mean})},
                        {"n", Ints({n})},
                        {"v", Floats({v})}};
  };
  ASSERT_TRUE(server.gradients.Join(0, model(1, 10, 3, 2), {"mean", "n"}).ok());
  auto reply = server.gradients.Push({{"w", Floats({0.5})}, {"v", Floats({1})}},
                                     1, {0, 1});
  ASSERT_TRUE(reply.ok()) << reply.status();
  const auto value = [&](size_t i) {
    return Values(reply->model.weights.value.at(i).second)[0];
  };
  EXPECT_EQ(value(0), 0.5);
  EXPECT_EQ(value(1), 10);
  EXPECT_EQ(value(2), 3);
  EXPECT_EQ(value(3), 1);
  reply = server.gradients.Push(model(0, 20, 4, 0), 2, {0, 2});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(value(0), 0.5);
  EXPECT_EQ(value(1), 20);
  EXPECT_EQ(value(2), 4);
  // A parameter cannot be left out.
  EXPECT_THAT(server.gradients.Push({{"w", Floats({1})}}, 3, {0, 3})
                  .status()
                  .ToString(),
              HasSubstr("worker 0: lacks 'v'"));
}

// A push waits for the step of another, which brings newer ones.
TEST(GradientServerTest, BuffersLeftOutAreThoseOfTheTimeOfTheStep) {
  Server server({.mode = kAsync}, "moody", {});
  const auto model = [](float w, float mean) {
    return NamedTensors{{"w", Floats({w})}, {"mean", Floats({mean})}};
  };
  ASSERT_TRUE(server.gradients.Join(0, model(1, 10), {"mean"}).ok());
  absl::Notification stepping;
  absl::Notification go_on;
  Moody(server).in_step = [&] {
    if (stepping.HasBeenNotified()) return;
    stepping.Notify();
    go_on.WaitForNotification();
  };
  PushInThread first(server, model(0, 20), 1, {0, 1});
  stepping.WaitForNotification();
  const int64_t bytes = server.gradients.GetStats().bytes;
  PushInThread second(server, {{"w", Floats({0.5})}}, 1, {1, 1});
  // Once it is counted, it has been completed.
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (server.gradients.GetStats().bytes == bytes && absl::Now() < deadline) {
    std::this_thread::yield();
  }
  go_on.Notify();
  ASSERT_TRUE(first.Get().ok()) << first.Get().status();
  ASSERT_TRUE(second.Get().ok()) << second.Get().status();
  EXPECT_THAT(Weights(server), ElementsAre(0.5));
  EXPECT_THAT(Values(server.gradients.Snapshot()->weights[1].second),
              ElementsAre(20));
}

TEST(GradientServerTest, WhateverAStrategyThrowsTheServerGoesOn) {
  Server server({.mode = kAsync}, "moody", {});
  Begin(server, One({1}));
  const auto push = [&] { return server.gradients.Push(One({2}), 1, {0, 1}); };
  Moody(server).in_step = [] { throw 5; };
  EXPECT_THAT(push().status().ToString(),
              AllOf(HasSubstr("INTERNAL"), HasSubstr("no std::exception")));
  Moody(server).throws_in = "Reset";
  EXPECT_THAT(push().status().ToString(),
              AllOf(HasSubstr("no std::exception"),
                    HasSubstr("Reset threw: out of luck")));
  EXPECT_FALSE(server.gradients.Start(One({9}), std::nullopt).ok());
  Moody(server).in_step = nullptr;
  const auto reply = push();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_FALSE(reply->repeated);
  EXPECT_THAT(Weights(*reply), ElementsAre(-1));
}

TEST(GradientServerTest, WeightsSetFromOutsideEndTheRound) {
  Server server({.num_workers = 2});
  Begin(server, One({0}));
  PushInThread waiting(server, One({1}), 1, {0, 1});
  // It waits once its round is there to be dissolved.
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  int64_t version = 1;
  while (!waiting.done() && absl::Now() < deadline) {
    version = *server.gradients.Start(One({9}), std::nullopt);
  }
  ASSERT_TRUE(waiting.Get().ok()) << waiting.Get().status();
  EXPECT_FALSE(waiting.Get()->accepted);
  EXPECT_THAT(Weights(*waiting.Get()), ElementsAre(9));
  EXPECT_GT(version, 1);
}

// What a server that was killed goes on from.
class RestoreTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(folder_); }
  ServerOptions Options() const {
    return {.state_dir = folder_, .mode = kAsync};
  }
  const std::string folder_ = testing::TempDir() + "/gradients";
};

TEST_F(RestoreTest, GoesOnToTheBit) {
  const auto push = [](Server& server, int64_t i) {
    const auto reply = server.gradients.Push(
        Gradient(server.gradients.Snapshot()->weights, 0, int(i)), i, {0, i});
    ASSERT_TRUE(reply.ok()) << reply.status();
  };
  Server undisturbed({.mode = kAsync}, "adam", {});
  Begin(undisturbed);
  for (int64_t i = 1; i <= 6; ++i) push(undisturbed, i);

  {
    Server first(Options(), "adam", {});
    ASSERT_TRUE(first.gradients.Restore(0).ok());
    Begin(first);
    for (int64_t i = 1; i <= 3; ++i) push(first, i);
    EXPECT_EQ(first.gradients.num_saves(), 5);
  }
  Server second(Options(), "adam", {});
  ASSERT_TRUE(second.gradients.Restore(1).ok());
  EXPECT_EQ(second.gradients.Snapshot()->version, 4);
  // What was acknowledged, or not, is not used again.
  const auto again = second.gradients.Push(One({9, 9}), 3, {0, 3});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->repeated);
  for (int64_t i = 4; i <= 6; ++i) push(second, i);
  EXPECT_TRUE(SameBits(second.gradients.Snapshot()->weights[0].second,
                       undisturbed.gradients.Snapshot()->weights[0].second));
}

TEST_F(RestoreTest, AnotherServersStateIsRefused) {
  Server server(Options());
  EXPECT_THAT(server.gradients.Restore(1).ToString(),
              HasSubstr("its state is not in"));
  ASSERT_TRUE(server.gradients.Restore(0).ok());
  const auto optimizer = Create("adam", {});
  GradientServer other(dynamic_cast<GradientStrategy*>(optimizer.get()),
                       {.name = "adam", .options = {}, .text = "adam"},
                       Options());
  EXPECT_THAT(
      other.Restore(0).ToString(),
      HasSubstr("a server with the strategy sgd, and this one has adam"));
}

TEST_F(RestoreTest, AStepThatCannotBeSavedIsNotTakenTwice) {
  Server server(Options());
  ASSERT_TRUE(server.gradients.Restore(0).ok());
  Begin(server, One({0}));
  // A folder in the file's place.
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_ + "/server.state.next");
  EXPECT_THAT(server.gradients.Push(One({1}), 1, {0, 1}).status().ToString(),
              HasSubstr("save the parameter server's state"));
  EXPECT_FALSE(server.gradients.Push(One({1}), 1, {0, 1}).ok());
  std::filesystem::remove_all(folder_);
  const auto reply = server.gradients.Push(One({1}), 1, {0, 1});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->repeated);
  EXPECT_THAT(Weights(*reply), ElementsAre(-1));
  Server next(Options());
  ASSERT_TRUE(next.gradients.Restore(1).ok());
  EXPECT_THAT(Weights(next), ElementsAre(-1));
}

TEST_F(RestoreTest, AStrategyThatCannotTellItsStateIsNotSteppedTwice) {
  Server server(Options(), "moody", {});
  ASSERT_TRUE(server.gradients.Restore(0).ok());
  Begin(server, One({0}));
  Moody(server).throws_in = "SaveState";
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(server.gradients.Push(One({1}), 1, {0, 1}).status().ToString(),
                HasSubstr("SaveState threw: out of luck"));
  }
  Moody(server).throws_in.clear();
  const auto reply = server.gradients.Push(One({1}), 1, {0, 1});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->repeated);
  EXPECT_THAT(Weights(*reply), ElementsAre(-1));
}

TEST_F(RestoreTest, WeightsThatCannotBeSavedEndTheRoundToo) {
  Server server({.state_dir = folder_, .num_workers = 2});
  ASSERT_TRUE(server.gradients.Restore(0).ok());
  Begin(server, One({0}));
  std::filesystem::create_directories(folder_ + "/server.state.next");
  const int64_t bytes = server.gradients.GetStats().bytes;
  PushInThread waiting(server, One({1}), 1, {0, 1});
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  // Once it is counted, it has been looked at.
  while (server.gradients.GetStats().bytes == bytes && absl::Now() < deadline) {
    std::this_thread::yield();
  }
  // It waits once its round is there to be dissolved.
  while (!waiting.done() && absl::Now() < deadline) {
    EXPECT_FALSE(server.gradients.Start(One({9}), std::nullopt).ok());
  }
  ASSERT_TRUE(waiting.Get().ok()) << waiting.Get().status();
  EXPECT_FALSE(waiting.Get()->accepted);
  EXPECT_THAT(Weights(*waiting.Get()), ElementsAre(9));
}

}  // namespace
}  // namespace miniray::ps
