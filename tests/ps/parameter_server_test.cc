// The parameter server with real worker processes.

#include "ps/parameter_server.h"

#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ps/median_strategy.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::ps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Worker {
 public:
  explicit Worker(NamedTensors weights) : weights_(std::move(weights)) {}
  NamedTensors GetWeights() {
    if (failing_ == "GetWeights") throw std::runtime_error("cannot get");
    return weights_;
  }
  absl::Status SetWeights(NamedTensors weights) {
    if (failing_ == "SetWeights") return absl::InternalError("cannot set");
    weights_ = std::move(weights);
    ++num_sets_;
    return absl::OkStatus();
  }
  void Fail(std::string method) { failing_ = std::move(method); }
  int NumSets() const { return num_sets_; }
  int64_t Pid() const { return getpid(); }

 private:
  NamedTensors weights_;
  std::string failing_;
  int num_sets_ = 0;
};
MINIRAY_ACTOR(Worker, Constructor<NamedTensors>, &Worker::GetWeights,
              &Worker::SetWeights, &Worker::Fail, &Worker::NumSets,
              &Worker::Pid);

// A strategy that a test can make misbehave.
class BrokenStrategy : public SyncStrategy {
 public:
  static std::vector<OptionSpec> Options() {
    return {{.name = "how", .default_value = "throw", .help = "what is wrong"}};
  }
  explicit BrokenStrategy(const StrategyOptions& options)
      : how_(*options.GetString("how", "")) {}
  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution> contributions) override {
    if (how_ == "throw") throw std::runtime_error("out of luck");
    if (how_ == "status") return absl::AbortedError("not today");
    NamedTensors result = {{"w", Floats({NAN})}};
    if (how_ == "shape") result = {{"w", Floats({1, 2})}};
    return result;
  }

 private:
  const std::string how_;
};
MINIRAY_SYNC_STRATEGY("broken", BrokenStrategy);

class ParameterServerTest : public ::testing::Test {
 protected:
  // One cluster serves all tests: starting one takes a second.
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {64}});
    cluster_ = new Cluster(nodes_->Connect());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete nodes_;
  }

  void StartServer(absl::string_view strategy,
                   const StrategyOptions& options = {},
                   const ServerOptions& server_options = {}) {
    auto server =
        CreateParameterServer(*cluster_, strategy, options, server_options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *server;
  }

  void StartWorkers(const std::vector<NamedTensors>& models) {
    for (const NamedTensors& model : models) {
      auto worker = cluster_->CreateActor<Worker>({}, model);
      ASSERT_TRUE(worker.ok()) << worker.status();
      workers_.push_back(*worker);
      handles_.push_back(*worker);
    }
  }

  absl::StatusOr<SyncResult> Sync() {
    return server_.Call<&ParameterServer::SyncFromWorkers>(handles_).Get();
  }

  std::string SyncError() {
    const auto result = Sync();
    return result.ok() ? "" : std::string(result.status().message());
  }

  NamedTensors WeightsOf(size_t worker) {
    auto weights = workers_[worker].Call<&Worker::GetWeights>().Get();
    EXPECT_TRUE(weights.ok()) << weights.status();
    return *std::move(weights);
  }

  int NumSets(size_t worker) {
    return *workers_[worker].Call<&Worker::NumSets>().Get();
  }

  SyncStats Stats() {
    auto stats = server_.Call<&ParameterServer::GetStats>().Get();
    EXPECT_TRUE(stats.ok()) << stats.status();
    return *stats;
  }

  void TearDown() override {
    for (const auto& worker : workers_) (void)worker.Kill();
    if (!server_.empty()) (void)server_.Kill();
  }

  static TestCluster* nodes_;
  static Cluster* cluster_;
  ActorHandle<ParameterServer> server_;
  std::vector<ActorHandle<Worker>> workers_;
  std::vector<AnyActorHandle> handles_;
};
TestCluster* ParameterServerTest::nodes_;
Cluster* ParameterServerTest::cluster_;

TEST_F(ParameterServerTest, AveragesAndLeavesAllWorkersWithTheSameBits) {
  StartServer("average");
  std::vector<NamedTensors> models;
  for (int worker = 0; worker < 3; ++worker) {
    std::vector<float> values;
    for (int i = 0; i < 10000; ++i) values.push_back(std::sin(i * 3 + worker));
    models.push_back({{"w", Floats(values).view({100, 100})},
                      {"small", Floats({static_cast<float>(worker)})},
                      {"n", Ints({worker})}});
  }
  StartWorkers(models);
  const auto result = Sync();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->version, 1);
  EXPECT_EQ(result->num_workers, 3);
  EXPECT_EQ(result->bytes, 2 * 3 * (40000 + 4 + 8));
  EXPECT_GT(result->seconds_pull, 0);
  EXPECT_GT(result->seconds_push, 0);

  const NamedTensors first = WeightsOf(0);
  ASSERT_EQ(first.size(), 3);
  EXPECT_EQ(first[0].second.sizes(), at::IntArrayRef({100, 100}));
  EXPECT_THAT(Values(first[1].second), ElementsAre(1));
  EXPECT_THAT(Values(first[2].second), ElementsAre(2));
  const auto pulled = server_.Call<&ParameterServer::PullWeights>().Get();
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  for (const NamedTensors& other : {WeightsOf(1), WeightsOf(2), *pulled}) {
    ASSERT_EQ(other.size(), first.size());
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(other[i].first, first[i].first);
      EXPECT_TRUE(SameBits(other[i].second, first[i].second));
    }
  }
  // Workers that agree stay as they are.
  ASSERT_TRUE(Sync().ok());
  EXPECT_TRUE(SameBits(WeightsOf(2)[0].second, first[0].second));
}

TEST_F(ParameterServerTest, MomentumCarriesOver) {
  StartServer("momentum", {{"momentum", 0.75}});
  StartWorkers({{{"w", Floats({1})}}, {{"w", Floats({3})}}});
  ASSERT_TRUE(Sync().ok());
  EXPECT_THAT(Values(WeightsOf(0)[0].second), ElementsAre(2));
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(workers_[i]
                    .Call<&Worker::SetWeights>(
                        NamedTensors{{"w", Floats({i == 0 ? 4.f : 8.f})}})
                    .Get()
                    .ok());
  }
  ASSERT_TRUE(Sync().ok());
  // 0.75 * 2 + 0.25 * 6
  EXPECT_THAT(Values(WeightsOf(1)[0].second), ElementsAre(3));
}

TEST_F(ParameterServerTest, WeighsWorkersByTheirIndex) {
  StartServer("weighted");
  StartWorkers({{{"w", Floats({1})}}, {{"w", Floats({5})}}});
  auto set = [&](int id, double weight) {
    return server_.Call<&ParameterServer::SetWorkerWeight>(id, weight).Get();
  };
  ASSERT_TRUE(set(0, 3).ok());  // Worker 1 keeps 1.
  ASSERT_TRUE(Sync().ok());
  EXPECT_THAT(Values(WeightsOf(0)[0].second), ElementsAre(2));

  EXPECT_THAT(std::string(set(1, NAN).message()), HasSubstr("worker 1"));
  EXPECT_EQ(set(1, -1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(set(-1, 1).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(set(0, 0).ok());
  ASSERT_TRUE(set(1, 0).ok());
  EXPECT_THAT(SyncError(), HasSubstr("the weights of all 2 workers are 0"));
}

TEST_F(ParameterServerTest, WeightsWithoutEffectAreAnError) {
  StartServer("average");
  const absl::Status status =
      server_.Call<&ParameterServer::SetWorkerWeight>(0, 2.0).Get();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'weighted' has"));
}

TEST_F(ParameterServerTest, AStrategyOfTheUsersOwnWorksByName) {
  StartServer("lower_median");
  StartWorkers(
      {{{"w", Floats({1})}}, {{"w", Floats({1000})}}, {{"w", Floats({2})}}});
  ASSERT_TRUE(Sync().ok());
  EXPECT_THAT(Values(WeightsOf(1)[0].second), ElementsAre(2));
}

TEST_F(ParameterServerTest, StatsCountWhatWasDone) {
  StartServer("momentum", {{"momentum", 0.5}});
  SyncStats stats = Stats();
  EXPECT_EQ(stats.strategy, "momentum (momentum=0.5)");
  EXPECT_EQ(stats.version, 0);
  EXPECT_FALSE(stats.initialized);
  StartWorkers({{{"w", Floats({1, 2})}}, {{"w", Floats({3, 4})}}});
  ASSERT_TRUE(Sync().ok());
  ASSERT_TRUE(Sync().ok());
  stats = Stats();
  EXPECT_EQ(stats.version, 2);
  EXPECT_EQ(stats.num_syncs, 2);
  EXPECT_TRUE(stats.initialized);
  EXPECT_EQ(stats.num_tensors, 1);
  EXPECT_EQ(stats.bytes_pulled, 2 * 2 * 8);
  EXPECT_EQ(stats.bytes_pushed, 2 * 2 * 8);
  EXPECT_GT(stats.seconds_pull, 0);
  EXPECT_GT(stats.seconds_aggregate, 0);
  EXPECT_GT(stats.seconds_push, 0);
}

TEST_F(ParameterServerTest, PushedWeightsReachWorkersAndStartTheMomentum) {
  StartServer("momentum", {{"momentum", 0.5}});
  StartWorkers({{{"w", Floats({1})}}, {{"w", Floats({3})}}});
  auto push_to_workers = [&] {
    return server_.Call<&ParameterServer::PushToWorkers>(handles_).Get();
  };
  EXPECT_EQ(push_to_workers().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(server_.Call<&ParameterServer::PullWeights>().Get().status().code(),
            absl::StatusCode::kFailedPrecondition);

  auto push = [&](NamedTensors weights) {
    return server_.Call<&ParameterServer::PushWeights>(std::move(weights))
        .Get();
  };
  EXPECT_EQ(*push({{"w", Floats({10})}}), 1);
  ASSERT_TRUE(Sync().ok());
  // 0.5 * 10 + 0.5 * 2
  EXPECT_THAT(Values(WeightsOf(0)[0].second), ElementsAre(6));
  EXPECT_EQ(*push({{"w", Floats({7})}}), 3);
  ASSERT_TRUE(push_to_workers().ok());
  EXPECT_THAT(Values(WeightsOf(1)[0].second), ElementsAre(7));

  EXPECT_THAT(std::string(push({{"w", Floats({1, 2})}}).status().message()),
              HasSubstr("'w' is Float [2], expected Float [1] as in the "
                        "parameter server"));
  EXPECT_THAT(std::string(push({{"w", Floats({NAN})}}).status().message()),
              HasSubstr("infinite or NaN"));
  EXPECT_EQ(Stats().version, 3);
}

TEST_F(ParameterServerTest, WrongStrategiesAndOptionsAreErrorsOnTheDriver) {
  EXPECT_THAT(
      std::string(CreateParameterServer(*cluster_, "mean").status().message()),
      HasSubstr("average, "));
  EXPECT_THAT(std::string(CreateParameterServer(*cluster_, "momentum",
                                                {{"momentum", 1.7}})
                              .status()
                              .message()),
              HasSubstr("must be in [0, 1), got 1.7"));
  // The actor checks too: it may be of another program.
  auto server = cluster_->CreateActor<ParameterServer>(
      {}, std::string("mean"), StrategyOptions(), ServerOptions(), ShardRole());
  ASSERT_TRUE(server.ok());
  EXPECT_THAT(std::string(server->WaitReady(absl::Seconds(20)).message()),
              HasSubstr("no synchronisation strategy 'mean'"));
}

TEST_F(ParameterServerTest, NeedsWorkers) {
  StartServer("average");
  EXPECT_THAT(SyncError(), HasSubstr("no workers"));
}

// In each of these cases nothing may have been pushed.
class FailedPullTest : public ParameterServerTest {
 protected:
  void ExpectNothingPushed() {
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (i == dead_) continue;
      EXPECT_EQ(NumSets(i), 0) << i;
    }
    EXPECT_EQ(Stats().version, 0);
    EXPECT_FALSE(Stats().initialized);
  }
  size_t dead_ = -1;
};

TEST_F(FailedPullTest, AShapeThatDiffersNamesWorkerAndTensor) {
  StartServer("average");
  StartWorkers({{{"fc.weight", Floats({1, 2})}},
                {{"fc.weight", Floats({1, 2})}},
                {{"fc.weight", Floats({1, 2, 3})}}});
  const std::string error = SyncError();
  EXPECT_THAT(error, HasSubstr("worker 2 ("));
  EXPECT_THAT(error, HasSubstr("'fc.weight' is Float [3], expected Float [2] "
                               "as in worker 0"));
  ExpectNothingPushed();
}

TEST_F(FailedPullTest, AValueThatIsNotFiniteNamesWorkerAndTensor) {
  StartServer("average");
  StartWorkers({{{"w", Floats({1, 2})}}, {{"w", Floats({1, INFINITY})}}});
  EXPECT_THAT(SyncError(), AllOf(HasSubstr("worker 1 ("),
                                 HasSubstr("'w' Float [2] holds a value that "
                                           "is infinite or NaN")));
  ExpectNothingPushed();
}

TEST_F(FailedPullTest, AnExceptionOfAWorkerNamesIt) {
  StartServer("average");
  StartWorkers({{{"w", Floats({1})}}, {{"w", Floats({2})}}});
  ASSERT_TRUE(
      workers_[1].Call<&Worker::Fail>(std::string("GetWeights")).Get().ok());
  EXPECT_THAT(SyncError(),
              AllOf(HasSubstr("worker 1 ("), HasSubstr("cannot get")));
  ExpectNothingPushed();
}

TEST_F(FailedPullTest, ADeadWorkerIsNamedWithTheCause) {
  StartServer("average");
  StartWorkers({{{"w", Floats({1})}}, {{"w", Floats({2})}}});
  const auto pid = workers_[1].Call<&Worker::Pid>().Get();
  ASSERT_TRUE(pid.ok());
  ASSERT_EQ(kill(static_cast<pid_t>(*pid), SIGKILL), 0);
  dead_ = 1;
  EXPECT_THAT(SyncError(),
              AllOf(HasSubstr("worker 1 ("), HasSubstr("signal 9")));
  ExpectNothingPushed();
}

TEST_F(FailedPullTest, MistakesOfAStrategyDoNotReachTheWorkers) {
  const std::pair<const char*, const char*> cases[] = {
      {"throw", "threw: out of luck"},
      {"status", "not today"},
      {"nan", "its result: 'w' Float [1] holds a value that is infinite"},
      {"shape", "its result: 'w' is Float [2], expected Float [1]"}};
  StartWorkers({{{"w", Floats({1})}}, {{"w", Floats({2})}}});
  for (const auto& [how, expected] : cases) {
    StartServer("broken", {{"how", how}});
    EXPECT_THAT(SyncError(),
                AllOf(HasSubstr("strategy broken"), HasSubstr(expected)))
        << how;
    ExpectNothingPushed();
    ASSERT_TRUE(server_.Kill().ok());
  }
}

TEST_F(ParameterServerTest, AFailedPushNamesTheWorkerAndCanBeRepeated) {
  StartServer("average");
  StartWorkers({{{"w", Floats({1})}}, {{"w", Floats({3})}}});
  ASSERT_TRUE(
      workers_[0].Call<&Worker::Fail>(std::string("SetWeights")).Get().ok());
  // Who has which weights, and how to go on.
  EXPECT_THAT(SyncError(),
              AllOf(HasSubstr("worker 0 ("), HasSubstr("cannot set"),
                    HasSubstr("1 of 2 workers have the server's weights, "
                              "version 1, and what they had before is still "
                              "with worker 0 (Worker"),
                    HasSubstr("PushToWorkers")));
  EXPECT_THAT(Values(WeightsOf(1)[0].second), ElementsAre(2));
  EXPECT_EQ(Stats().version, 1);
  EXPECT_EQ(Stats().num_syncs, 0);
  ASSERT_TRUE(workers_[0].Call<&Worker::Fail>(std::string()).Get().ok());
  ASSERT_TRUE(Sync().ok());
  EXPECT_THAT(Values(WeightsOf(0)[0].second), ElementsAre(1.5));
}

TEST_F(ParameterServerTest, WithoutKeepingAFailureLeavesTheServerEmpty) {
  StartServer("average", {}, {.keep_weights = false});
  StartWorkers({{{"w", Floats({1, 2})}},
                {{"w", Floats({3, 4})}},
                {{"w", Floats({5, NAN})}}});
  const std::vector<AnyActorHandle> sound = {workers_[0], workers_[1]};
  const auto sync = [&](const std::vector<AnyActorHandle>& workers,
                        const std::string& id) {
    return server_.Call<&ParameterServer::SyncOnce>(workers, id).Get();
  };
  ASSERT_TRUE(sync(sound, "first").ok());
  EXPECT_TRUE(SameBits(WeightsOf(0)[0].second, Floats({2, 3})));
  // The result is not finite.
  EXPECT_THAT(std::string(sync(handles_, "second").status().message()),
              AllOf(HasSubstr("worker 2 ("), HasSubstr("infinite or NaN")));
  const auto none = server_.Call<&ParameterServer::PullWeights>().Get();
  EXPECT_TRUE(absl::IsFailedPrecondition(none.status())) << none.status();
  EXPECT_THAT(std::string(none.status().message()),
              AllOf(HasSubstr("StartFromWorkers or PushWeights"),
                    HasSubstr("the next synchronisation that succeeds")));
  // Nobody could go on from that.
  EXPECT_TRUE(absl::IsFailedPrecondition(
      server_.Call<&ParameterServer::ExportState>().Get().status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      server_.Call<&ParameterServer::PushToWorkers>(sound).Get()));
  EXPECT_EQ(Stats().version, 1);
  EXPECT_FALSE(Stats().initialized);
  EXPECT_TRUE(SameBits(WeightsOf(0)[0].second, Floats({2, 3})));
  // The first one's weights are gone: it is done again, not only pushed.
  const auto again = sync(sound, "first");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->repeated);
  EXPECT_EQ(again->version, 2);
  const auto weights = server_.Call<&ParameterServer::PullWeights>().Get();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_TRUE(SameBits(weights->front().second, Floats({2, 3})));
  EXPECT_TRUE(server_.Call<&ParameterServer::ExportState>().Get().ok());
  // Worker 0's are a way out, too.
  EXPECT_FALSE(sync(handles_, "third").ok());
  EXPECT_FALSE(Stats().initialized);
  EXPECT_TRUE(
      server_.Call<&ParameterServer::StartFromWorkers>(sound).Get().ok());
  EXPECT_TRUE(Stats().initialized);
  EXPECT_TRUE(
      server_.Call<&ParameterServer::PushToWorkers>(handles_).Get().ok());
}

TEST_F(ParameterServerTest, WithoutKeepingTooFewWorkersCostNoWeights) {
  StartServer("krum", {{"num_malicious", int64_t{0}}},
              {.min_workers = 2, .keep_weights = false});
  StartWorkers(
      {{{"w", Floats({1})}}, {{"w", Floats({1})}}, {{"w", Floats({1})}}});
  ASSERT_TRUE(Sync().ok());
  // Three are needed.
  ASSERT_TRUE(
      workers_[2].Call<&Worker::Fail>(std::string("GetWeights")).Get().ok());
  EXPECT_THAT(SyncError(), AllOf(HasSubstr("strategy krum"),
                                 HasSubstr("needs at least 2 * num_malicious + "
                                           "3 workers, and there are 2")));
  EXPECT_TRUE(Stats().initialized);
  EXPECT_TRUE(server_.Call<&ParameterServer::PullWeights>().Get().ok());
  ASSERT_TRUE(workers_[2].Call<&Worker::Fail>(std::string()).Get().ok());
  EXPECT_TRUE(Sync().ok());
}

TEST_F(ParameterServerTest, WithoutKeepingWeightsOfNobodyCostNoWeights) {
  StartServer("weighted", {}, {.keep_weights = false});
  StartWorkers({{{"w", Floats({1})}}, {{"w", Floats({5})}}});
  const auto set = [&](int id, double weight) {
    return server_.Call<&ParameterServer::SetWorkerWeight>(id, weight).Get();
  };
  ASSERT_TRUE(set(0, 3).ok());
  ASSERT_TRUE(Sync().ok());
  ASSERT_TRUE(set(0, 0).ok());
  ASSERT_TRUE(set(1, 0).ok());
  EXPECT_THAT(SyncError(), HasSubstr("the weights of all 2 workers are 0"));
  EXPECT_TRUE(Stats().initialized);
  EXPECT_TRUE(server_.Call<&ParameterServer::PullWeights>().Get().ok());
  ASSERT_TRUE(set(1, 1).ok());
  EXPECT_TRUE(Sync().ok());
}

TEST_F(ParameterServerTest, StrategiesWithAMemoryNeedTheWeightsKept) {
  for (const char* strategy : {"momentum", "fedavgm", "dp", "sgd"}) {
    EXPECT_THAT(std::string(CreateParameterServer(*cluster_, strategy, {},
                                                  {.keep_weights = false})
                                .status()
                                .message()),
                HasSubstr("leave keep_weights at true"))
        << strategy;
  }
  for (const char* strategy :
       {"weighted", "median", "trimmed_mean", "krum", "multi_krum", "bulyan"}) {
    auto server =
        CreateParameterServer(*cluster_, strategy, {}, {.keep_weights = false});
    ASSERT_TRUE(server.ok()) << strategy << ": " << server.status();
    EXPECT_TRUE(server->Kill().ok());
  }
}

TEST_F(ParameterServerTest, TheFirstWeightsFixTheModel) {
  StartServer("average");
  StartWorkers({{{"w", Floats({1})}}});
  ASSERT_TRUE(Sync().ok());
  workers_.clear();
  handles_.clear();
  StartWorkers({{{"v", Floats({1})}}});
  EXPECT_THAT(SyncError(), HasSubstr("tensor 0 is 'v', expected 'w' as in the "
                                     "parameter server"));
}

TEST_F(ParameterServerTest, AsksForNoCpu) {
  TestCluster nodes({.node_cpus = {1}});
  Cluster cluster = nodes.Connect();
  auto worker = cluster.CreateActor<Worker>({}, NamedTensors());
  ASSERT_TRUE(worker->WaitReady(absl::Seconds(20)).ok());
  auto server = CreateParameterServer(cluster);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_TRUE(server->WaitReady(absl::Seconds(20)).ok());
}

}  // namespace
}  // namespace miniray::ps

TEST_CLUSTER_MAIN()
