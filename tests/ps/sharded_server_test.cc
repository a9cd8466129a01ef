// Parameter servers of several shards, with real processes.

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/parameter_server.h"
#include "ps/shard_states.h"
#include "ps/strategy_registry.h"
#include "ps/weight_exchange.h"
#include "tests/ps/exchange_test.h"
#include "tests/ps/exchange_worker.h"
#include "tests/ps/survival.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::ps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kShards = 3;

class ShardedServerTest : public ExchangeTest<Worker> {
 protected:
  static std::vector<AnyActorHandle> ShardsOf(
      const ActorHandle<ParameterServer>& server) {
    auto shards = server.Call<&ParameterServer::GetShards>().Get();
    EXPECT_TRUE(shards.ok()) << shards.status();
    return *std::move(shards);
  }
};

TEST_F(ShardedServerTest, EveryStrategyHasTheBitsOfOneShard) {
  StartWorkers(7);  // As bulyan needs.
  for (const std::string& name : StrategyRegistry::Get().NamesTaking(false)) {
    SCOPED_TRACE(name);
    StrategyOptions options;
    if (name == "dp") options = {{"seed", 5}, {"inner", "fedadam"}};
    const auto run = [&](int64_t num_shards, NamedTensors* pulled) {
      ResetWorkers();
      const auto server =
          StartServer({.num_shards = num_shards}, name, options);
      auto started =
          server.Call<&ParameterServer::StartFromWorkers>(handles_).Get();
      EXPECT_TRUE(started.ok()) << started.status();
      for (int64_t i = 0; name == "weighted" && i < 7; ++i) {
        EXPECT_TRUE(server
                        .Call<&ParameterServer::SetWorkerWeight>(
                            i, static_cast<double>(i + 1))
                        .Get()
                        .ok());
      }
      for (int step = 0; step < 3; ++step) {
        Train(step);
        const auto result = Sync(server);
        EXPECT_TRUE(result.ok()) << result.status();
      }
      ExpectAllTheSame();
      auto weights = server.Call<&ParameterServer::PullWeights>().Get();
      EXPECT_TRUE(weights.ok()) << weights.status();
      if (weights.ok()) *pulled = *std::move(weights);
      EXPECT_TRUE(StopParameterServer(server).ok());
      return WeightsOf(0);
    };
    NamedTensors pulled_one, pulled_three;
    const NamedTensors one = run(1, &pulled_one);
    const NamedTensors three = run(kShards, &pulled_three);
    ExpectSame(three, one);
    ExpectSame(pulled_three, pulled_one);
  }
}

TEST_F(ShardedServerTest, AStartNeedsNoQuorum) {
  StartWorkers(3);
  const auto server =
      StartServer({.min_workers = 2, .num_shards = kShards}, "fedavgm");
  const auto started =
      server.Call<&ParameterServer::StartFromWorkers>(handles_).Get();
  EXPECT_TRUE(started.ok()) << started.status();
  EXPECT_TRUE(Sync(server).ok());
}

TEST_F(ShardedServerTest, CompressedTheyHaveTheBitsOfOneShardToo) {
  StartWorkers(3);
  for (const Compression method : {Compression::kFp16, Compression::kBf16,
                                   Compression::kInt8, Compression::kTopK}) {
    const auto run = [&](int64_t num_shards, int64_t* bytes) {
      ResetWorkers();
      const auto server = StartServer({.from_workers = {.method = method},
                                       .to_workers = {.method = method},
                                       .num_shards = num_shards},
                                      "momentum");
      for (int step = 0; step < 3; ++step) {
        Train(step);
        const auto result = Sync(server);
        EXPECT_TRUE(result.ok()) << result.status();
        if (result.ok()) *bytes = result->bytes;
      }
      ExpectAllTheSame();
      EXPECT_TRUE(StopParameterServer(server).ok());
      return WeightsOf(0);
    };
    int64_t bytes_one = 0, bytes_three = 0;
    const NamedTensors one = run(1, &bytes_one);
    const NamedTensors three = run(kShards, &bytes_three);
    ExpectSame(three, one);
    EXPECT_EQ(bytes_three, bytes_one);
  }
}

TEST_F(ShardedServerTest, ItIsOneServerToItsUser) {
  StartWorkers(2);
  const auto server = StartServer({.num_shards = kShards}, "weighted");
  EXPECT_EQ(server.Call<&ParameterServer::PullWeights>().Get().status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Sync(server).status().ToString(),
              AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("worker 0 ("),
                    HasSubstr("NumSamples")));
  ASSERT_TRUE(
      server.Call<&ParameterServer::SetWorkerWeight>(0, 3.0).Get().ok());
  ASSERT_TRUE(
      server.Call<&ParameterServer::SetWorkerWeight>(1, 1.0).Get().ok());
  const auto result = Sync(server);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->version, 1);
  EXPECT_EQ(result->bytes, 2 * 2 * kModelBytes);
  const NamedTensors model = WeightsOf(0);
  EXPECT_EQ(model[0].second.sizes(), at::IntArrayRef({101, 333}));
  EXPECT_NEAR(Values(model[2].second)[0],
              0.75 * std::sin(0) + 0.25 * std::sin(1), 1e-6);
  const auto stats = server.Call<&ParameterServer::GetStats>().Get();
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(stats->version, 1);
  EXPECT_EQ(stats->num_syncs, 1);
  EXPECT_EQ(stats->num_tensors, 4);
  EXPECT_EQ(stats->contributions_accepted, 2);
  EXPECT_EQ(stats->bytes_pulled, 2 * kModelBytes);
  // From a checkpoint.
  EXPECT_EQ(*server.Call<&ParameterServer::PushWeights>(Model(9)).Get(), 2);
  ASSERT_TRUE(
      server.Call<&ParameterServer::PushToWorkers>(handles_).Get().ok());
  ExpectSame(WeightsOf(1), Model(9));
  // Of another shape with the same elements.
  NamedTensors other = Model(9);
  other[0].second = other[0].second.view({333, 101});
  EXPECT_THAT(server.Call<&ParameterServer::PushWeights>(other)
                  .Get()
                  .status()
                  .ToString(),
              HasSubstr("other shapes"));
  EXPECT_EQ(server.Call<&ParameterServer::GetStats>().Get()->version, 2);
  // Once for each id.
  Train(1);
  auto once = [&] {
    return server.Call<&ParameterServer::SyncOnce>(handles_, "a").Get();
  };
  EXPECT_FALSE(once()->repeated);
  const auto again = once();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->repeated);
  EXPECT_EQ(again->version, 3);
}

TEST_F(ShardedServerTest, ShardsLieOnDifferentNodesAndEndTogether) {
  const auto server = StartServer({.num_shards = 2});
  ASSERT_TRUE(server.WaitReady().ok());
  const std::vector<AnyActorHandle> shards = ShardsOf(server);
  ASSERT_EQ(shards.size(), 2);
  std::set<std::string> node_ids;
  std::vector<int64_t> pids = {nodes_.Info(server).pid()};
  for (const AnyActorHandle& shard : shards) {
    ASSERT_TRUE(shard.WaitReady().ok());
    node_ids.insert(nodes_.Info(shard).node_id());
    pids.push_back(nodes_.Info(shard).pid());
  }
  EXPECT_EQ(node_ids.size(), 2);
  ASSERT_TRUE(StopParameterServer(server).ok());
  for (const int64_t pid : pids) {
    EXPECT_TRUE(Eventually([&] { return !ProcessLives(pid); })) << pid;
  }
}

TEST_F(ShardedServerTest, OneBadPartAndNoShardChanges) {
  StartWorkers(3);
  const auto server = StartServer({.num_shards = kShards});
  ASSERT_TRUE(Sync(server).ok());
  const NamedTensors before = WeightsOf(0);
  NamedTensors update = Model(0);
  for (auto& [name, tensor] : update) tensor.zero_();
  update[2].second[3] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(workers_[1].Call<&Worker::Add>(update).Get().ok());
  EXPECT_THAT(Sync(server).status().ToString(),
              AllOf(HasSubstr("worker 1 (Worker"), HasSubstr("'bias'"),
                    HasSubstr("infinite or NaN")));
  ExpectSame(WeightsOf(0), before);
  EXPECT_EQ(server.Call<&ParameterServer::GetStats>().Get()->version, 1);
  // It goes on when the worker is well again.
  ASSERT_TRUE(workers_[1].Call<&Worker::SetWeights>(before).Get().ok());
  ASSERT_TRUE(Sync(server).ok());
  ExpectSame(WeightsOf(2), before);
}

TEST_F(ShardedServerTest, WhoIsLeftOutByOneShardIsLeftOutByAll) {
  StartWorkers(3);
  const auto server = StartServer({.non_finite = NonFinitePolicy::kDropWorker,
                                   .min_workers = 1,
                                   .num_shards = kShards});
  NamedTensors update = Model(0);
  for (auto& [name, tensor] : update) tensor.zero_();
  update[2].second[3] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(workers_[1].Call<&Worker::Add>(update).Get().ok());
  const auto result = Sync(server);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->num_refused, 1);
  // The first element, of the first part, is of workers 0 and 2 alone.
  EXPECT_NEAR(Values(WeightsOf(1)[0].second.flatten())[0],
              (std::sin(0) + std::sin(2)) / 2, 1e-6);
  ExpectAllTheSame();
  const auto stats = server.Call<&ParameterServer::GetStats>().Get();
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(stats->contributions_accepted, 2);
  EXPECT_THAT(stats->warnings, ElementsAre(HasSubstr("worker 1 (Worker")));

  const auto strict = StartServer({.non_finite = NonFinitePolicy::kDropWorker,
                                   .min_workers = 3,
                                   .num_shards = kShards});
  ASSERT_TRUE(workers_[1].Call<&Worker::Add>(update).Get().ok());
  EXPECT_THAT(
      Sync(strict).status().ToString(),
      AllOf(HasSubstr("worker 1 ("),
            HasSubstr("2 of 3 workers are left, and min_workers is 3")));
}

// Optimizers of the server remember more than weights. The second one goes back
// to it from a later version.
// One that may fail to take weights.
class MoodyWorker {
 public:
  explicit MoodyWorker(NamedTensors weights) : weights_(std::move(weights)) {}

  NamedTensors GetWeights() { return weights_; }
  absl::Status SetWeights(const NamedTensors& weights) {
    if (sets_to_fail_ > 0) {
      --sets_to_fail_;
      return absl::InternalError("cannot set");
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      weights_[i].second.copy_(weights[i].second);
    }
    ++num_sets_;
    return absl::OkStatus();
  }
  void Add(const NamedTensors& update) {
    for (size_t i = 0; i < update.size(); ++i) {
      weights_[i].second.add_(update[i].second);
    }
  }
  absl::StatusOr<ReadOnly<WeightMessage>> SendWeights(
      const WeightRequest& request) {
    return exchange_.Send(request, weights_);
  }
  absl::Status ReceiveWeights(const ReadOnly<WeightMessage>& message) {
    return exchange_.Receive(
        message.value,
        [this](const NamedTensors& weights) { return SetWeights(weights); });
  }
  void FailNextSets(int64_t count) { sets_to_fail_ = count; }
  int64_t NumSets() const { return num_sets_; }

 private:
  NamedTensors weights_;
  WeightExchange exchange_;
  int64_t sets_to_fail_ = 0;
  int64_t num_sets_ = 0;
};
MINIRAY_ACTOR(MoodyWorker, Constructor<NamedTensors>, &MoodyWorker::GetWeights,
              &MoodyWorker::SetWeights, &MoodyWorker::Add,
              &MoodyWorker::SendWeights, &MoodyWorker::ReceiveWeights,
              &MoodyWorker::FailNextSets, &MoodyWorker::NumSets);

// Which of the shards hears of it is chance: the one whose part is the last.
using MoodyWorkersTest = ExchangeTest<MoodyWorker>;

TEST_F(MoodyWorkersTest, WhoFailsToTakeAllPartsDoesNotCountInAnyShard) {
  StartWorkers(3);
  const auto server = StartServer({.min_workers = 2, .num_shards = kShards});
  const auto sync = [&] {
    const auto result = Sync(server);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.value_or(SyncResult());
  };
  // In the push, and as it is sent them again.
  ASSERT_TRUE(workers_[1].Call<&MoodyWorker::FailNextSets>(2).Get().ok());
  SyncResult result = sync();
  EXPECT_EQ(result.version, 1);
  EXPECT_EQ(result.num_lost, 0);  // Its contribution had come.
  EXPECT_EQ(result.num_behind, 1);
  ExpectSame(WeightsOf(0), WeightsOf(2));
  Train(1);
  const at::Tensor expected =
      WeightsOf(0)[0].second.add(WeightsOf(2)[0].second).div(2);
  result = sync();
  EXPECT_EQ(result.num_lost, 1);
  EXPECT_EQ(result.num_behind, 1);
  EXPECT_LE(WeightsOf(0)[0].second.sub(expected).abs().max().item<float>(),
            1e-6);
  // This time it takes them.
  ASSERT_TRUE(Eventually(
      [&] { return *workers_[1].Call<&MoodyWorker::NumSets>().Get() == 1; }));
  ExpectAllTheSame();
  Train(2);
  result = sync();
  EXPECT_EQ(result.num_lost, 0);
  EXPECT_EQ(result.num_behind, 0);
  ExpectAllTheSame();
}

TEST_F(MoodyWorkersTest, WhoFailsToTakeAllPartsOnceGetsAllOfThemAtOnce) {
  StartWorkers(2);
  const auto server = StartServer({.min_workers = 1, .num_shards = kShards});
  ASSERT_TRUE(workers_[1].Call<&MoodyWorker::FailNextSets>(1).Get().ok());
  const auto result = Sync(server);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->num_behind, 1);
  ASSERT_TRUE(Eventually(
      [&] { return *workers_[1].Call<&MoodyWorker::NumSets>().Get() == 1; }));
  ExpectAllTheSame();
}

TEST_F(MoodyWorkersTest, AFailedPushTellsWhoHasWhichVersion) {
  StartWorkers(3);
  const auto server = StartServer({.num_shards = kShards});
  ASSERT_TRUE(workers_[1].Call<&MoodyWorker::FailNextSets>(1).Get().ok());
  EXPECT_THAT(Sync(server).status().ToString(),
              AllOf(HasSubstr("worker 1 (MoodyWorker"), HasSubstr("cannot set"),
                    HasSubstr("2 of 3 workers have the server's weights, "
                              "version 1"),
                    HasSubstr("still with worker 1 (MoodyWorker")));
  // What the error says to do.
  ASSERT_TRUE(
      server.Call<&ParameterServer::PushToWorkers>(handles_).Get().ok());
  ExpectAllTheSame();
}

TEST_F(ShardedServerTest, AServerGoesOnFromTheStateOfAnother) {
  StartWorkers(3);
  for (const Compression method : {Compression::kNone, Compression::kFp16}) {
    ResetWorkers();
    const ServerOptions options = {.to_workers = {.method = method},
                                   .num_shards = kShards};
    const auto first = StartServer(options, "fedadam");
    for (int step = 0; step < 2; ++step) {
      Train(step);
      ASSERT_TRUE(Sync(first).ok());
    }
    const NamedTensors saved = WeightsOf(0);
    const auto state = first.Call<&ParameterServer::ExportState>().Get();
    ASSERT_TRUE(state.ok()) << state.status();
    Train(2);
    ASSERT_TRUE(Sync(first).ok());
    const NamedTensors expected = WeightsOf(0);
    const auto pulled = first.Call<&ParameterServer::PullWeights>().Get();
    ASSERT_TRUE(StopParameterServer(first).ok());

    const auto second = StartServer(options, "fedadam");
    for (int i = 0; i < 2; ++i) {
      const auto imported =
          second.Call<&ParameterServer::ImportState>(*state).Get();
      ASSERT_TRUE(imported.ok()) << imported;
      EXPECT_EQ(VersionOf(second), 2);
      // All but what they have trained; with compression what they hold is the
      // server's to know.
      EndWorkers();
      StartWorkers(3);
      for (const auto& worker : workers_) {
        ASSERT_TRUE(worker.Call<&Worker::SetWeights>(saved).Get().ok());
      }
      if (method != Compression::kNone) {
        ASSERT_TRUE(
            second.Call<&ParameterServer::PushToWorkers>(handles_).Get().ok());
        ExpectSame(WeightsOf(1), saved);
      }
      Train(2);
      ASSERT_TRUE(Sync(second).ok());
      ExpectSame(WeightsOf(0), expected);
      ExpectAllTheSame();
      ExpectSame(*second.Call<&ParameterServer::PullWeights>().Get(), *pulled);
    }
    ASSERT_TRUE(StopParameterServer(second).ok());
  }
}

TEST_F(ShardedServerTest, AStateThatDoesNotFitChangesNoShard) {
  StartWorkers(2);
  const auto three = StartServer({.num_shards = 3});
  const auto import = [](const auto& server, const std::string& state) {
    return server.template Call<&ParameterServer::ImportState>(state)
        .Get()
        .ToString();
  };
  const auto export_from = [](const auto& server) {
    auto state = server.template Call<&ParameterServer::ExportState>().Get();
    EXPECT_TRUE(state.ok()) << state.status();
    return *std::move(state);
  };
  // Before there are weights, the weights of workers are all that there is.
  const std::string empty = export_from(three);
  EXPECT_EQ(import(three, empty), "OK");
  ASSERT_TRUE(Sync(three).ok());
  EXPECT_THAT(import(three, empty), HasSubstr("without weights"));
  const std::string state = export_from(three);
  const NamedTensors before = WeightsOf(0);

  const auto one = StartServer({});
  EXPECT_THAT(import(one, state),
              AllOf(HasSubstr("FAILED_PRECONDITION"),
                    HasSubstr("with 3 shards (num_shards), and this one has "
                              "1")));
  EXPECT_THAT(import(three, export_from(one)),
              AllOf(HasSubstr("FAILED_PRECONDITION"),
                    HasSubstr("with 1 shard (num_shards), and this one has "
                              "3")));
  const auto two = StartServer({.num_shards = 2});
  EXPECT_THAT(import(two, state), HasSubstr("with 3 shards"));
  EXPECT_THAT(import(three, state.substr(0, state.size() - 1)),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("cut short")));
  const auto other = StartServer({.num_shards = 3}, "median");
  EXPECT_THAT(import(other, state), HasSubstr("the strategy average"));

  // Of another model: only the last part has another shape.
  NamedTensors model = Model(0);
  model[2].second = Floats({1, 2, 3, 4, 5, 6, 7, 8});
  const auto larger = StartServer({.num_shards = 3});
  ASSERT_TRUE(larger.Call<&ParameterServer::PushWeights>(model).Get().ok());
  EXPECT_THAT(import(larger, state), HasSubstr("INVALID_ARGUMENT"));
  ExpectSame(*larger.Call<&ParameterServer::PullWeights>().Get(), model);
  EXPECT_EQ(VersionOf(larger), 1);
  // Once it begins anew, it may be any model's.
  ASSERT_TRUE(larger.Call<&ParameterServer::BeginAnew>().Get().ok());
  EXPECT_EQ(VersionOf(larger), 0);
  EXPECT_EQ(import(larger, state), "OK");
  ASSERT_TRUE(Sync(three).ok());
  ExpectSame(WeightsOf(0), before);
}

// Back to an older version again and again, while shards and the server in
// front are killed.
TEST_F(ShardedServerTest, AStateIsImportedByAllShardsWhoeverDies) {
  constexpr int kRounds = 8;
  StartWorkers(2);
  const auto server = StartServer(
      {.state_dir = Folder("import"), .num_shards = kShards}, "momentum");
  std::vector<AnyActorHandle> victims = ShardsOf(server);
  victims.push_back(server);
  for (const AnyActorHandle& victim : victims) {
    ASSERT_TRUE(victim.WaitReady().ok());
  }
  Train(0);
  ASSERT_TRUE(Sync(server).ok());
  const NamedTensors saved = WeightsOf(0);
  const auto state = server.Call<&ParameterServer::ExportState>().Get();
  ASSERT_TRUE(state.ok()) << state.status();
  Killer killer(&nodes_, kRounds, kRounds, 26);
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    ResetWorkers();
    const auto synced = server.With({.max_retries = -1})
                            .Call<&ParameterServer::SyncOnce>(
                                handles_, absl::StrCat("round ", round))
                            .Get();
    ASSERT_TRUE(synced.ok()) << synced.status();
    EXPECT_EQ(synced->version, 2);
    auto call = server.With({.max_retries = -1})
                    .Call<&ParameterServer::ImportState>(*state);
    ASSERT_TRUE(killer.IsTime());
    killer.Kill(victims[killer.Random() % victims.size()],
                absl::Milliseconds(15));
    const absl::Status imported = call.Get();
    ASSERT_TRUE(imported.ok()) << imported;
    const auto weights = server.With({.max_retries = -1})
                             .Call<&ParameterServer::PullWeights>()
                             .Get();
    ASSERT_TRUE(weights.ok()) << weights.status();
    ExpectSame(*weights, saved);
    EXPECT_EQ(VersionOf(server), 1);
  }
}

// An import that is interrupted between the commits of two shards: all have
// agreed by then. What the one has is older than what the others still have.
TEST_F(ShardedServerTest, AnImportThatOneShardHasIsFinishedByTheNextCall) {
  StartWorkers(2);
  const auto server =
      StartServer({.state_dir = Folder("interrupted"), .num_shards = kShards});
  Train(0);
  ASSERT_TRUE(Sync(server).ok());
  const NamedTensors saved = WeightsOf(0);
  const auto state = server.Call<&ParameterServer::ExportState>().Get();
  ASSERT_TRUE(state.ok()) << state.status();
  const auto states = UnpackShardStates(*state);
  ASSERT_TRUE(states.ok()) << states.status();
  const std::vector<AnyActorHandle> shards = ShardsOf(server);
  // The first shard, and the last.
  for (const size_t committed : {size_t{0}, shards.size() - 1}) {
    Train(1);
    ASSERT_TRUE(Sync(server).ok());
    ASSERT_EQ(VersionOf(server), 2);
    for (size_t i = 0; i < shards.size(); ++i) {
      const auto prepared =
          shards[i]
              .CallByName<Outcome>("ImportPart", states->shards[i], states->id)
              .Get();
      ASSERT_TRUE(prepared.ok()) << prepared.status();
      ASSERT_TRUE(prepared->status().ok()) << prepared->status();
    }
    ASSERT_TRUE(shards[committed]
                    .CallByName<void>("CommitPart", states->id)
                    .Get()
                    .ok());
    // Until its process has ended it may still answer.
    const int64_t pid = nodes_.Info(server).pid();
    ASSERT_TRUE(server.Kill(/*no_restart=*/false).ok());
    ASSERT_TRUE(Eventually([&] { return !ProcessLives(pid); }));
    const auto weights = server.With({.max_retries = -1})
                             .Call<&ParameterServer::PullWeights>()
                             .Get();
    ASSERT_TRUE(weights.ok()) << weights.status();
    ExpectSame(*weights, saved);
    EXPECT_EQ(VersionOf(server), 1);
  }
}

TEST_F(ShardedServerTest, ADeadShardIsAnErrorThatNamesIt) {
  StartWorkers(2);
  const auto server = StartServer({.num_shards = kShards});
  ASSERT_TRUE(Sync(server).ok());
  ASSERT_TRUE(ShardsOf(server)[1].Kill().ok());
  ASSERT_TRUE(Eventually([&] { return !Sync(server).ok(); }));
  EXPECT_THAT(Sync(server).status().ToString(),
              AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("shard 1 of 3")));
}

TEST_F(ShardedServerTest, ModelsThatAreTooSmallSayHowManyShardsTheyTake) {
  auto small = cluster_.CreateActor<Worker>({.resources = {.cpu = 0}},
                                            NamedTensors{{"w", Floats({1})}});
  ASSERT_TRUE(small.ok());
  const auto server = StartServer({.num_shards = 2});
  const std::vector<AnyActorHandle> handles = {*small};
  EXPECT_THAT(
      server.Call<&ParameterServer::SyncFromWorkers>(handles)
          .Get()
          .status()
          .ToString(),
      AllOf(HasSubstr("worker 0"), HasSubstr("num_shards from 1 to 1")));
}

TEST_F(ShardedServerTest, WrongOptionsAreErrorsOnTheDriver) {
  for (const ServerOptions& wrong :
       {ServerOptions{.num_shards = 0}, ServerOptions{.num_shards = 5000},
        ServerOptions{.state_dir = "x", .save_every = 2, .num_shards = 2}}) {
    EXPECT_EQ(
        CreateParameterServer(cluster_, "average", {}, wrong).status().code(),
        absl::StatusCode::kInvalidArgument);
  }
  EXPECT_THAT(CreateParameterServer(cluster_, "sgd", {}, {.num_shards = 2})
                  .status()
                  .ToString(),
              HasSubstr("num_workers does not say how many make a round"));
}

TEST_F(ShardedServerTest, AFolderOfAnotherCutIsRefused) {
  StartWorkers(1);
  const std::string folder = Folder("cut");
  const auto two = StartServer({.state_dir = folder, .num_shards = 2});
  ASSERT_TRUE(Sync(two).ok());
  ASSERT_TRUE(StopParameterServer(two).ok());
  for (const int64_t num_shards : {1, 3}) {
    const auto other =
        StartServer({.state_dir = folder, .num_shards = num_shards});
    const std::string error = num_shards == 1
                                  ? other.WaitReady().ToString()
                                  : ShardsOf(other)[0].WaitReady().ToString();
    EXPECT_THAT(error, AllOf(HasSubstr(folder), HasSubstr("number of shards"),
                             HasSubstr("use another folder")));
    (void)StopParameterServer(other);
  }
  const auto next = StartServer({.state_dir = folder, .num_shards = 2});
  EXPECT_EQ(next.Call<&ParameterServer::GetStats>().Get()->version, 1);
}

// Trains and synchronises; kills shards and the server in front `kills` times,
// somewhere.
class ShardedSurvivalTest : public ShardedServerTest,
                            public testing::WithParamInterface<std::string> {
 protected:
  NamedTensors Run(const std::string& name, int kills, uint64_t seed) {
    constexpr int kSyncs = 20;
    Killer killer(&nodes_, kills, kSyncs, seed);
    StartWorkers(7);
    const auto server =
        StartServer({.state_dir = Folder(name),
                     .from_workers = {.method = Compression::kInt8},
                     .num_shards = kShards},
                    GetParam());
    EXPECT_TRUE(server.WaitReady().ok());
    std::vector<AnyActorHandle> victims = ShardsOf(server);
    victims.push_back(server);
    for (const AnyActorHandle& victim : victims) {
      EXPECT_TRUE(victim.WaitReady().ok());
    }
    for (int sync = 0; sync < kSyncs; ++sync) {
      const auto result =
          SyncUnderFire(server, sync, &killer, victims, absl::Milliseconds(30));
      if (!result.ok()) return {};
    }
    EXPECT_EQ(killer.kills_left(), 0);
    return EndRun(server, kSyncs);
  }
};

TEST_P(ShardedSurvivalTest, KilledTwelveTimesItEndsWhereItWouldHave) {
  ExpectSurvives(12,
                 [this](const std::string& folder, int kills, uint64_t seed) {
                   return Run(folder, kills, seed);
                 });
}
INSTANTIATE_TEST_SUITE_P(Strategies, ShardedSurvivalTest,
                         testing::Values("momentum", "fedadam", "bulyan"));

}  // namespace
}  // namespace miniray::ps

TEST_CLUSTER_MAIN()
