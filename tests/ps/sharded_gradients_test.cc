// Parameter servers of several shards that take gradients, with real processes;
// the workers are threads of the test.

#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "ATen/ops/full_like.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/gradient_client.h"
#include "ps/parameter_server.h"
#include "ps/strategy_registry.h"
#include "tests/ps/exchange_test.h"
#include "tests/ps/exchange_worker.h"
#include "tests/ps/survival.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::ps {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kShards = 3;
constexpr SyncMode kAsync = SyncMode::kAsynchronous;

const std::vector<std::string> kBuffers = {"bn.running_var", "count"};

// Of Model: it depends on the weights, the worker and the step. Buffers move as
// BatchNorm's do.
NamedTensors GradientOf(const NamedTensors& weights, int worker, int64_t step) {
  NamedTensors gradients =
      Model(static_cast<double>(worker) * 3.1 + static_cast<double>(step) * 7);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor& own = weights[i].second;
    at::Tensor& value = gradients[i].second;
    if (gradients[i].first == "count") {
      value = own.add(1);
    } else if (gradients[i].first == "bn.running_var") {
      value = own.mul(0.9).add(value.mul(0.1));
    } else {
      value = value.add(own.mul(0.5));
    }
  }
  return gradients;
}

class ShardedGradientsTest : public ExchangeTest<Worker> {
 protected:
  static std::vector<AnyActorHandle> ShardsOf(
      const ActorHandle<ParameterServer>& server) {
    auto shards = server.Call<&ParameterServer::GetShards>().Get();
    EXPECT_TRUE(shards.ok()) << shards.status();
    return *std::move(shards);
  }

  static SyncStats Stats(const ActorHandle<ParameterServer>& server) {
    const auto stats = server.With({.max_retries = -1})
                           .Call<&ParameterServer::GetStats>()
                           .Get();
    EXPECT_TRUE(stats.ok()) << stats.status();
    return stats.value_or(SyncStats());
  }

  // Versions, by shard.
  static std::vector<int64_t> Versions(
      const std::vector<AnyActorHandle>& shards) {
    std::vector<int64_t> versions;
    for (const AnyActorHandle& shard : shards) {
      const auto state = shard.CallByName<PartState>("GetPartState").Get();
      EXPECT_TRUE(state.ok()) << state.status();
      versions.push_back(state.ok() ? state->version : -1);
    }
    return versions;
  }

  // Trains with so many workers at once; returns what each has in the end.
  // meanwhile: is told how far they are.
  static std::vector<NamedTensors> Train(
      const ActorHandle<ParameterServer>& server, int num_workers,
      int64_t steps,
      const std::function<void(const std::atomic<int64_t>& steps)>& meanwhile =
          [](const auto& steps) {}) {
    std::vector<NamedTensors> ends(num_workers);
    std::atomic<int64_t> steps_done = 0;  // Of all workers.
    std::vector<std::thread> threads;
    for (int worker = 0; worker < num_workers; ++worker) {
      threads.emplace_back([&, worker] {
        GradientClient client(server, worker);
        auto weights = client.Join(Model(worker), kBuffers);
        ASSERT_TRUE(weights.ok()) << weights.status();
        for (int64_t step = 0; step < steps; ++step) {
          auto reply = client.Push({GradientOf(weights->value, worker, step)});
          ASSERT_TRUE(reply.ok()) << reply.status();
          ASSERT_TRUE(reply->accepted || reply->repeated);
          weights = std::move(reply->model.weights);
          ++steps_done;
        }
        const absl::Status left = client.Leave();
        ASSERT_TRUE(left.ok()) << left;
        ends[worker] = weights->value;
      });
    }
    meanwhile(steps_done);
    for (std::thread& thread : threads) thread.join();
    return ends;
  }

  // The same from the same start, with a server of its own that is ended.
  NamedTensors TrainNew(const ServerOptions& options, int num_workers,
                        const std::string& strategy,
                        const StrategyOptions& strategy_options = {}) {
    const auto server = StartServer(options, strategy, strategy_options);
    EXPECT_TRUE(
        server.Call<&ParameterServer::PushWeights>(Model(5)).Get().ok());
    constexpr int64_t kSteps = 6;
    const std::vector<NamedTensors> ends = Train(server, num_workers, kSteps);
    const auto pulled = server.Call<&ParameterServer::PullWeights>().Get();
    EXPECT_TRUE(pulled.ok()) << pulled.status();
    if (!pulled.ok()) return {};
    for (const NamedTensors& end : ends) ExpectSame(end, *pulled);
    const SyncStats stats = Stats(server);
    EXPECT_EQ(stats.version, 1 + kSteps);
    EXPECT_EQ(stats.gradients.accepted, kSteps * num_workers);
    EXPECT_EQ(stats.num_tensors, 4);
    EXPECT_TRUE(StopParameterServer(server).ok());
    return *pulled;
  }
};

TEST_F(ShardedGradientsTest, RoundsHaveTheBitsOfOneShard) {
  for (const std::string& name : StrategyRegistry::Get().NamesTaking(true)) {
    SCOPED_TRACE(name);
    StrategyOptions options = {{"weight_decay", 0.01}};
    if (name == "sgd") options = {{"lr", 0.1}, {"momentum", 0.9}};
    const NamedTensors one = TrainNew({.num_workers = 3}, 3, name, options);
    ExpectSame(
        TrainNew({.num_shards = kShards, .num_workers = 3}, 3, name, options),
        one);
  }
}

TEST_F(ShardedGradientsTest, OneWorkerAloneHasTheBitsOfOneShard) {
  const NamedTensors one = TrainNew({.mode = kAsync}, 1, "adam");
  ExpectSame(TrainNew({.num_shards = 2, .mode = kAsync}, 1, "adam"), one);
  ExpectSame(TrainNew({.num_shards = 5, .mode = kAsync}, 1, "adam"), one);
}

TEST_F(ShardedGradientsTest, CompressedTheyHaveTheBitsOfOneShardToo) {
  const NamedTensors uncompressed =
      TrainNew({.num_workers = 2}, 2, "sgd", {{"lr", 0.1}});
  for (const Compression method : {Compression::kFp16, Compression::kBf16,
                                   Compression::kInt8, Compression::kTopK}) {
    const auto run = [&](int64_t num_shards) {
      return TrainNew({.from_workers = {.method = method},
                       .num_shards = num_shards,
                       .num_workers = 2},
                      2, "sgd", {{"lr", 0.1}});
    };
    const NamedTensors one = run(1);
    ExpectSame(run(kShards), one);
    EXPECT_FALSE(SameBits(one[0].second, uncompressed[0].second));
  }
}

TEST_F(ShardedGradientsTest, CompressionSavesBytes) {
  for (const int64_t num_shards : {1, 3}) {
    const auto server =
        StartServer({.from_workers = {.method = Compression::kFp16},
                     .num_shards = num_shards,
                     .mode = kAsync},
                    "sgd");
    Train(server, 1, 3);
    const GradientStats stats = Stats(server).gradients;
    // The weight and the bias halved, the buffers as they are.
    const int64_t saved = 2 * (33'633 + 7);
    EXPECT_EQ(stats.bytes_saved, 3 * saved);
    EXPECT_EQ(stats.bytes, 3 * (kModelBytes - saved));
  }
}

TEST_F(ShardedGradientsTest, AsynchronousWorkersAllCount) {
  const auto server = StartServer({.num_shards = kShards,
                                   .mode = kAsync,
                                   .num_workers = 3,
                                   .max_staleness = 1},
                                  "adam");
  Train(server, 3, 15);
  const GradientStats stats = Stats(server).gradients;
  EXPECT_EQ(stats.accepted, 45);
  EXPECT_EQ(stats.steps, 45);
  for (const WorkerClock& clock : stats.clocks) {
    EXPECT_EQ(clock.clock, 15);
    EXPECT_EQ(clock.last_sequence, 15);
    EXPECT_FALSE(clock.active);
  }
}

TEST_F(ShardedGradientsTest, AllBeginWithTheWeightsOfTheSameWorker) {
  const auto server = StartServer(
      {.num_shards = kShards, .mode = kAsync, .num_workers = 4}, "sgd");
  const std::vector<NamedTensors> starts = Train(server, 4, 0);
  for (const NamedTensors& start : starts) ExpectSame(start, starts[0]);
  const int64_t first = starts[0][3].second.item<int64_t>();  // Its count.
  ASSERT_GE(first, 0);
  ASSERT_LT(first, 4);
  ExpectSame(starts[0], Model(static_cast<double>(first)));
}

TEST_F(ShardedGradientsTest, BuffersNeedNotBeAmongTheGradients) {
  // The second shard has nothing else.
  const NamedTensors start = {
      {"w", at::arange(5000).to(at::kFloat)},
      {"bn.running_var", at::arange(5000).to(at::kFloat)}};
  const auto server =
      StartServer({.num_shards = 2, .mode = kAsync}, "sgd", {{"lr", 1.0}});
  GradientClient client(server, 0);
  ASSERT_TRUE(client.Join(start, {"bn.running_var"}).ok());
  const auto reply = client.Push({{{"w", at::arange(5000).to(at::kFloat)}}});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(Values(reply->model.weights.value[0].second), Each(0));
  EXPECT_TRUE(SameBits(reply->model.weights.value[1].second, start[1].second));
  // Nor may a parameter be missing.
  EXPECT_THAT(
      client.Push({{{"bn.running_var", start[1].second}}}).status().ToString(),
      AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("worker 0"),
            HasSubstr("is 'bn.running_var', expected 'w'")));
  EXPECT_EQ(Versions(ShardsOf(server)), std::vector<int64_t>({2, 2}));
}

TEST_F(ShardedGradientsTest, ItIsOneServerToItsUser) {
  StartWorkers(2);
  const auto server =
      StartServer({.num_shards = kShards, .num_workers = 2}, "sgd");
  EXPECT_EQ(server.Call<&ParameterServer::PullWeights>().Get().status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(Stats(server).initialized);
  const auto started =
      server.Call<&ParameterServer::StartFromWorkers>(handles_).Get();
  ASSERT_TRUE(started.ok()) << started.status();
  EXPECT_EQ(*started, 1);
  ExpectSame(WeightsOf(1), Model(0));
  EXPECT_EQ(*server.Call<&ParameterServer::PushWeights>(Model(9)).Get(), 2);
  ASSERT_TRUE(
      server.Call<&ParameterServer::PushToWorkers>(handles_).Get().ok());
  ExpectSame(WeightsOf(1), Model(9));
  EXPECT_TRUE(Stats(server).initialized);
  // Without a Join, with what is there.
  GradientClient client(server, 0);
  const auto pulled = client.Pull();
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  ExpectSame(pulled->value, Model(9));
  EXPECT_EQ(client.version(), 2);
  // Of another shape with the same elements: no shard takes it.
  NamedTensors other = Model(1);
  other[0].second = other[0].second.view({333, 101});
  EXPECT_THAT(server.Call<&ParameterServer::PushWeights>(other)
                  .Get()
                  .status()
                  .ToString(),
              HasSubstr("'fc.weight' is Float [333, 101], expected"));
  EXPECT_THAT(
      GradientClient(server, 1).Join(other, kBuffers).status().ToString(),
      AllOf(HasSubstr("worker 1"), HasSubstr("'fc.weight'")));
  EXPECT_EQ(Versions(ShardsOf(server)), std::vector<int64_t>({2, 2, 2}));
  for (const absl::Status& refused :
       {server.Call<&ParameterServer::SyncGradientsFromWorkers>(handles_)
            .Get()
            .status(),
        server.Call<&ParameterServer::SyncOnce>(handles_, "a")
            .Get()
            .status()}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("workers push theirs (GradientClient)"));
  }
  EXPECT_THAT(
      GradientClient(server, 2).Join(Model(0), kBuffers).status().ToString(),
      AllOf(HasSubstr("shard 0 of 3"), HasSubstr("from 0 to 1")));
  std::vector<int64_t> pids = {nodes_.Info(server).pid()};
  for (const AnyActorHandle& shard : ShardsOf(server)) {
    pids.push_back(nodes_.Info(shard).pid());
  }
  ASSERT_TRUE(StopParameterServer(server).ok());
  for (const int64_t pid : pids) {
    EXPECT_TRUE(Eventually([&] { return !ProcessLives(pid); })) << pid;
  }
}

TEST_F(ShardedGradientsTest, ModelsThatAreTooSmallSayHowManyShardsTheyTake) {
  const auto server = StartServer({.num_shards = 2, .mode = kAsync}, "sgd");
  EXPECT_THAT(
      GradientClient(server, 4)
          .Join({{"w", Floats({1})}}, {})
          .status()
          .ToString(),
      AllOf(HasSubstr("worker 4"), HasSubstr("num_shards from 1 to 1")));
}

TEST_F(ShardedGradientsTest, OneBadValueAndNoShardChanges) {
  const auto server = StartServer(
      {.num_shards = kShards, .mode = kAsync, .num_workers = 2}, "sgd");
  GradientClient client(server, 1);
  ASSERT_TRUE(client.Join(Model(0), kBuffers).ok());
  NamedTensors bad = GradientOf(Model(0), 1, 0);
  bad[0].second.view({-1})[30'000] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(client.Push({bad}).status().ToString(),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("worker 1"),
                    HasSubstr("'fc.weight'"), HasSubstr("flat index 30000")));
  EXPECT_EQ(Versions(ShardsOf(server)), std::vector<int64_t>({1, 1, 1}));
  // The same gradient, mended.
  const auto reply = client.Push({GradientOf(Model(0), 1, 0)});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->accepted);
  EXPECT_EQ(reply->model.version, 2);
}

TEST_F(ShardedGradientsTest, ABadGradientIsLeftOutByAllShards) {
  const auto server = StartServer({.non_finite = NonFinitePolicy::kDropWorker,
                                   .num_shards = kShards,
                                   .num_workers = 2},
                                  "sgd", {{"lr", 1.0}});
  GradientClient good(server, 0), bad(server, 1);
  ASSERT_TRUE(good.Join(Model(0), kBuffers).ok());
  ASSERT_TRUE(bad.Join(Model(0), kBuffers).ok());
  const NamedTensors gradients = GradientOf(Model(0), 0, 0);
  std::thread other([&] {
    NamedTensors spoiled = GradientOf(Model(0), 1, 0);
    spoiled[2].second[3] = std::numeric_limits<float>::quiet_NaN();
    const auto reply = bad.Push({spoiled});
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_FALSE(reply->accepted);
    EXPECT_EQ(reply->model.version, 2);
  });
  const auto reply = good.Push({gradients});
  other.join();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->accepted);
  // Also in the first part, where the bad one's values are sound.
  EXPECT_TRUE(SameBits(reply->model.weights.value[0].second,
                       Model(0)[0].second.sub(gradients[0].second)));
  EXPECT_EQ(Stats(server).gradients.refused, 1);
}

// What a worker that died had sent to one shard.
class TornPushTest : public ShardedGradientsTest {
 protected:
  // Of a model in which all parts are of ones; of the first shard.
  void PushToFirst(const ActorHandle<ParameterServer>& server, int worker,
                   int64_t version, float value) {
    const AnyActorHandle first = ShardsOf(server)[0];
    const auto part = first.CallByName<PullReply>("PullVersionedWeights").Get();
    ASSERT_TRUE(part.ok()) << part.status();
    GradientPush push = {.id = {.worker = worker, .sequence = 1},
                         .version = version};
    for (const auto& [name, tensor] : part->model.weights.value) {
      push.gradients.emplace_back(name, at::full_like(tensor, value));
    }
    const auto reply = first
                           .CallByName<PushReply>("PushGradients",
                                                  ReadOnly<GradientPush>{push})
                           .Get();
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_TRUE(reply->accepted);
  }

  static NamedTensors Filled(float value) {
    return {{"a", at::full({4096}, value)}, {"b", at::full({4096}, value)}};
  }
};

TEST_F(TornPushTest, InRoundsTheShardBehindCatchesUp) {
  const auto server =
      StartServer({.num_shards = 2, .num_workers = 1}, "sgd", {{"lr", 1.0}});
  ASSERT_TRUE(GradientClient(server, 0).Join(Filled(0), {}).ok());
  PushToFirst(server, 0, 1, 1);
  const std::vector<AnyActorHandle> shards = ShardsOf(server);
  EXPECT_EQ(Versions(shards), std::vector<int64_t>({2, 1}));
  GradientClient next(server, 0);
  const auto joined = next.Join(Filled(0), {});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(next.version(), 1);
  EXPECT_THAT(Values(joined->value[0].second), Each(-1));
  EXPECT_THAT(Values(joined->value[1].second), Each(0));
  auto reply = next.Push({Filled(10)});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->model.version, 2);
  EXPECT_EQ(Versions(shards), std::vector<int64_t>({2, 2}));
  EXPECT_THAT(Values(reply->model.weights.value[0].second), Each(-1));
  EXPECT_THAT(Values(reply->model.weights.value[1].second), Each(-10));
  reply = next.Push({Filled(100)});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(Versions(shards), std::vector<int64_t>({3, 3}));
  EXPECT_THAT(Values(reply->model.weights.value[0].second), Each(-101));
}

TEST_F(TornPushTest, AsynchronouslyWhatIsLostIsCounted) {
  const auto server = StartServer(
      {.num_shards = 2, .mode = kAsync, .num_workers = 2, .max_staleness = 3},
      "sgd", {{"lr", 1.0}});
  ASSERT_TRUE(GradientClient(server, 0).Join(Filled(0), {}).ok());
  PushToFirst(server, 0, 1, 1);
  GradientClient next(server, 0);
  ASSERT_TRUE(next.Join(Filled(0), {}).ok());
  const auto reply = next.Push({Filled(10)});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->accepted);
  EXPECT_THAT(Values(reply->model.weights.value[0].second), Each(-11));
  EXPECT_THAT(Values(reply->model.weights.value[1].second), Each(-10));
  // No shard has the worker further than another.
  for (const AnyActorHandle& shard : ShardsOf(server)) {
    const auto stats = shard.CallByName<SyncStats>("GetStats").Get();
    ASSERT_TRUE(stats.ok()) << stats.status();
    EXPECT_EQ(stats->gradients.clocks[0].clock, 2);
    EXPECT_EQ(stats->gradients.clocks[0].last_sequence, 2);
  }
}

TEST_F(TornPushTest, AfterAPullTheNextGradientIsAnotherOne) {
  for (const int shards : {1, 2}) {
    SCOPED_TRACE(shards);
    const auto server = StartServer({.sync_timeout_seconds = 1,
                                     .num_shards = shards,
                                     .mode = kAsync,
                                     .num_workers = 2,
                                     .max_staleness = 1},
                                    "sgd", {{"lr", 1.0}});
    GradientClient ahead(server, 0), slow(server, 1);
    ASSERT_TRUE(ahead.Join(Filled(0), {}).ok());
    ASSERT_TRUE(slow.Join(Filled(0), {}).ok());
    ASSERT_TRUE(ahead.Push({Filled(1)}).ok());
    // Both are used; their replies wait for the other worker, in vain.
    EXPECT_TRUE(absl::IsDeadlineExceeded(ahead.Push({Filled(10)}).status()));
    auto pulled = ahead.Pull();
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_THAT(Values(pulled->value[0].second), Each(-11));
    EXPECT_TRUE(absl::IsDeadlineExceeded(ahead.Push({Filled(100)}).status()));
    pulled = ahead.Pull();
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    for (const auto& [name, tensor] : pulled->value) {
      EXPECT_THAT(Values(tensor), Each(-111)) << name;
    }
  }
}

TEST_F(TornPushTest, ALateWorkerIsDroppedAndFindsItsWayBack) {
  const auto server = StartServer({.min_workers = 1,
                                   .sync_timeout_seconds = 2,
                                   .num_shards = 2,
                                   .num_workers = 2},
                                  "sgd", {{"lr", 1.0}});
  GradientClient prompt(server, 0), late(server, 1);
  ASSERT_TRUE(prompt.Join(Filled(0), {}).ok());
  ASSERT_TRUE(late.Join(Filled(0), {}).ok());
  // The first shard had its part in time, the second goes on without.
  std::thread in_time([&] { PushToFirst(server, 1, 1, 3); });
  auto reply = prompt.Push({Filled(1)});
  in_time.join();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(Values(reply->model.weights.value[0].second), Each(-2));
  EXPECT_THAT(Values(reply->model.weights.value[1].second), Each(-1));
  // The same push once more: nothing is used twice, nor too late.
  const auto again = late.Push({Filled(3)});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->accepted);
  EXPECT_TRUE(again->repeated);
  EXPECT_EQ(again->model.version, 2);
  EXPECT_THAT(Values(again->model.weights.value[0].second), Each(-2));
  EXPECT_THAT(Values(again->model.weights.value[1].second), Each(-1));
  std::thread together([&] { EXPECT_TRUE(late.Push({Filled(2)})->accepted); });
  reply = prompt.Push({Filled(4)});
  together.join();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(Values(reply->model.weights.value[0].second), Each(-5));
  EXPECT_THAT(Values(reply->model.weights.value[1].second), Each(-4));
  EXPECT_THAT(Stats(server).warnings, ElementsAre(HasSubstr("for worker 1")));
}

TEST_F(ShardedGradientsTest, ADeadShardIsAnErrorThatNamesIt) {
  const auto server =
      StartServer({.num_shards = kShards, .mode = kAsync}, "sgd");
  GradientClient client(server, 0);
  ASSERT_TRUE(client.Join(Model(0), kBuffers).ok());
  ASSERT_TRUE(ShardsOf(server)[1].Kill().ok());
  const auto push = [&] {
    return client.Push({GradientOf(Model(0), 0, 0)}).status();
  };
  ASSERT_TRUE(Eventually([&] { return !push().ok(); }));
  EXPECT_THAT(push().ToString(),
              AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("shard 1 of 3")));
  EXPECT_THAT(
      server.Call<&ParameterServer::PullWeights>().Get().status().ToString(),
      AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("shard 1 of 3")));
}

TEST_F(ShardedGradientsTest, AFolderOfAnotherCutIsRefused) {
  const std::string folder = Folder("gradient_cut");
  const ServerOptions options = {
      .state_dir = folder, .num_shards = 2, .mode = kAsync};
  const auto two = StartServer(options, "sgd");
  ASSERT_TRUE(two.Call<&ParameterServer::PushWeights>(Model(2)).Get().ok());
  ASSERT_TRUE(StopParameterServer(two).ok());
  const auto one = StartServer({.state_dir = folder, .mode = kAsync}, "sgd");
  EXPECT_THAT(one.WaitReady().ToString(),
              AllOf(HasSubstr(folder), HasSubstr("number of shards")));
  const auto next = StartServer(options, "sgd");
  const auto pulled = next.Call<&ParameterServer::PullWeights>().Get();
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  ExpectSame(*pulled, Model(2));
}

struct Case {
  std::string name;
  int num_workers;
  ServerOptions options;
};

// Trains while shards and the server in front are killed, somewhere.
class ShardedGradientSurvivalTest : public ShardedGradientsTest,
                                    public testing::WithParamInterface<Case> {
 protected:
  NamedTensors Run(const std::string& name, int kills, uint64_t seed) {
    constexpr int64_t kSteps = 40;
    const int num_workers = GetParam().num_workers;
    ServerOptions options = GetParam().options;
    options.state_dir = Folder(name);
    options.num_shards = kShards;
    const auto server = StartServer(options, "adam");
    EXPECT_TRUE(server.WaitReady().ok());
    EXPECT_TRUE(
        server.Call<&ParameterServer::PushWeights>(Model(0)).Get().ok());
    const std::vector<AnyActorHandle> shards = ShardsOf(server);
    std::vector<AnyActorHandle> victims = shards;
    victims.push_back(server);
    Killer killer(&nodes_, kills, kills, seed);
    const std::vector<NamedTensors> ends =
        Train(server, num_workers, kSteps, [&](const auto& steps) {
          for (int kill = 0; kill < kills; ++kill) {
            // Evenly over the run, up to the randomness of the last moment.
            const int64_t at = kSteps * num_workers * kill / (kills + 1);
            ASSERT_TRUE(Eventually([&] { return steps >= at; }));
            ASSERT_TRUE(killer.IsTime());
            killer.Kill(victims[killer.Random() % victims.size()],
                        absl::Milliseconds(20));
          }
        });
    EXPECT_EQ(killer.kills_left(), 0);
    const int64_t version =
        1 + (StepsInRounds(options) ? kSteps : kSteps * num_workers);
    EXPECT_THAT(Versions(shards), Each(version));
    auto weights = server.With({.max_retries = -1})
                       .Call<&ParameterServer::PullWeights>()
                       .Get();
    EXPECT_TRUE(weights.ok()) << weights.status();
    if (!weights.ok()) return {};
    for (const NamedTensors& end : ends) ExpectSame(end, *weights);
    EXPECT_TRUE(StopParameterServer(server).ok());
    return *std::move(weights);
  }
};

TEST_P(ShardedGradientSurvivalTest, NoGradientIsLostOrUsedTwice) {
  ExpectSurvives(10,
                 [this](const std::string& folder, int kills, uint64_t seed) {
                   return Run(folder, kills, seed);
                 });
}
INSTANTIATE_TEST_SUITE_P(
    Modes, ShardedGradientSurvivalTest,
    testing::Values(
        Case{"Rounds", 2, {.num_workers = 2}},
        Case{
            "RoundsInInt8",
            2,
            {.from_workers = {.method = Compression::kInt8}, .num_workers = 2}},
        Case{"Alone",
             1,
             {.mode = kAsync, .num_workers = 1, .max_staleness = 1}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace miniray::ps

TEST_CLUSTER_MAIN()
