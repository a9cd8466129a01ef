// Gradients pushed and pulled between real processes, and a server that dies.

#include <signal.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/gradient_client.h"
#include "ps/parameter_server.h"
#include "tests/ps/survival.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::ps {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kElements = 50'000;  // Enough to lie in shared memory.

NamedTensors Model(int worker) {
  std::vector<float> values;
  for (int64_t i = 0; i < kElements; ++i) {
    values.push_back(std::cos(static_cast<float>(i + worker)));
  }
  return {{"w", Floats(values)}};
}

// It depends on the weights, the worker and the step.
NamedTensors GradientOf(const NamedTensors& weights, int worker, int64_t step) {
  std::vector<float> values;
  const float* const w = weights.at(0).second.data_ptr<float>();
  for (int64_t i = 0; i < kElements; ++i) {
    values.push_back(0.5f * w[i] +
                     static_cast<float>((i * 7 + worker * 3 + step) % 11) - 5);
  }
  return {{"w", Floats(values)}};
}

class Worker {
 public:
  explicit Worker(int id) : id_(id), weights_(Model(id)) {}

  // --- For a server that pulls.
  NamedTensors GetWeights() { return weights_; }
  void SetWeights(NamedTensors weights) { weights_ = std::move(weights); }
  NamedTensors GetGradients() {
    if (bad_) return {{"w", Floats(std::vector<float>(kElements, NAN))}};
    return GradientOf(weights_, id_, step_++);
  }
  void Spoil(bool bad) { bad_ = bad; }

  // --- For one that is pushed to: trains for so many steps; returns how many
  // gradients were used.
  absl::StatusOr<int64_t> Train(const ActorHandle<ParameterServer>& server,
                                int64_t steps) {
    GradientClient client(server, id_);
    MR_ASSIGN_OR_RETURN(ReadOnly<NamedTensors> weights,
                        client.Join(weights_, {}));
    int64_t used = 0;
    for (int64_t step = 0; step < steps; ++step) {
      const ReadOnly<NamedTensors> gradients = {
          GradientOf(weights.value, id_, step)};
      MR_ASSIGN_OR_RETURN(PushReply reply, client.Push(gradients));
      used += reply.accepted || reply.repeated;
      weights = std::move(reply.model.weights);
    }
    MR_RETURN_IF_ERROR(client.Leave());
    weights_.clear();
    for (const auto& [name, tensor] : weights.value) {
      weights_.emplace_back(name, tensor.clone());
    }
    return used;
  }

 private:
  const int id_;
  NamedTensors weights_;
  int64_t step_ = 0;
  bool bad_ = false;
};
MINIRAY_ACTOR(Worker, Constructor<int>, &Worker::GetWeights,
              &Worker::SetWeights, &Worker::GetGradients, &Worker::Spoil,
              &Worker::Train);

class GradientPushTest : public testing::Test {
 protected:
  void StartWorkers(int count) {
    for (int i = 0; i < count; ++i) {
      auto worker = cluster_.CreateActor<Worker>({.resources = {.cpu = 0}}, i);
      ASSERT_TRUE(worker.ok()) << worker.status();
      workers_.push_back(*worker);
      handles_.push_back(*worker);
    }
  }

  ActorHandle<ParameterServer> StartServer(const ServerOptions& options,
                                           const std::string& strategy = "adam",
                                           const StrategyOptions& more = {}) {
    auto server = CreateParameterServer(cluster_, strategy, more, options);
    EXPECT_TRUE(server.ok()) << server.status();
    return *server;
  }

  NamedTensors WeightsOf(size_t worker) {
    auto weights = workers_[worker].Call<&Worker::GetWeights>().Get();
    EXPECT_TRUE(weights.ok()) << weights.status();
    return *std::move(weights);
  }

  static SyncStats Stats(const ActorHandle<ParameterServer>& server) {
    const auto stats = server.With({.max_retries = -1})
                           .Call<&ParameterServer::GetStats>()
                           .Get();
    EXPECT_TRUE(stats.ok()) << stats.status();
    return *stats;
  }

  static std::string StateFolder(absl::string_view name) {
    const std::string folder = absl::StrCat(testing::TempDir(), "/", name);
    std::filesystem::remove_all(folder);
    return folder;
  }

  TestCluster nodes_{{.node_cpus = {64},
                      .head = {.max_restart_delay = absl::Milliseconds(100)}}};
  Cluster cluster_ = nodes_.Connect();
  std::vector<ActorHandle<Worker>> workers_;
  std::vector<AnyActorHandle> handles_;
};

// What the issue of workers and modes comes to: all train at once.
struct Case {
  std::string name;
  int num_workers;
  ServerOptions options;
};

class KilledServerTest : public GradientPushTest,
                         public testing::WithParamInterface<Case> {
 protected:
  NamedTensors Run(const std::string& folder, int kills, uint64_t seed) {
    constexpr int64_t kSteps = 40;
    const int num_workers = GetParam().num_workers;
    StartWorkers(num_workers);
    ServerOptions options = GetParam().options;
    options.state_dir = StateFolder(folder);
    const auto server = StartServer(options);
    EXPECT_TRUE(server.WaitReady().ok());
    // Else the first worker to join brings them, and that may be any.
    EXPECT_TRUE(
        server.Call<&ParameterServer::PushWeights>(Model(0)).Get().ok());
    std::vector<ObjectRef<int64_t>> training;
    for (const auto& worker : workers_) {
      training.push_back(worker.Call<&Worker::Train>(server, kSteps));
    }
    Killer killer(&nodes_, kills, kills, seed);
    for (int i = 0; i < kills && killer.IsTime(); ++i) {
      // Somewhere in the next steps: while it checks, steps, saves, replies.
      killer.Kill(server, absl::Milliseconds(20));
    }
    const auto used = GetAll(training);
    EXPECT_TRUE(used.ok()) << used.status();
    if (!used.ok()) return {};
    EXPECT_THAT(*used, Each(kSteps));
    const SyncStats stats = Stats(server);
    EXPECT_EQ(stats.num_restarts, kills);
    EXPECT_EQ(stats.version,
              1 + (StepsInRounds(options) ? kSteps : kSteps * num_workers));
    NamedTensors weights = WeightsOf(0);
    EXPECT_TRUE(server.Kill().ok());
    for (const auto& worker : workers_) EXPECT_TRUE(worker.Kill().ok());
    workers_.clear();
    handles_.clear();
    return weights;
  }
};

TEST_P(KilledServerTest, NoGradientIsLostOrUsedTwice) {
  ExpectSurvives(8, [this](const std::string& folder, int kills,
                           uint64_t seed) { return Run(folder, kills, seed); });
}
INSTANTIATE_TEST_SUITE_P(Modes, KilledServerTest,
                         testing::Values(Case{"Rounds", 2, {.num_workers = 2}},
                                         Case{"Alone",
                                              1,
                                              {.mode = SyncMode::kAsynchronous,
                                               .num_workers = 1,
                                               .max_staleness = 1}}),
                         [](const auto& info) { return info.param.name; });

TEST_F(GradientPushTest, AsynchronousWorkersAllCount) {
  StartWorkers(3);
  const auto server = StartServer(
      {.mode = SyncMode::kAsynchronous, .num_workers = 3, .max_staleness = 2});
  std::vector<ObjectRef<int64_t>> training;
  for (const auto& worker : workers_) {
    training.push_back(worker.Call<&Worker::Train>(server, int64_t{20}));
  }
  const auto used = GetAll(training);
  ASSERT_TRUE(used.ok()) << used.status();
  const GradientStats stats = Stats(server).gradients;
  EXPECT_EQ(stats.accepted, 60);
  EXPECT_EQ(stats.steps, 60);
  int64_t counted = 0;
  for (const int64_t count : stats.staleness) counted += count;
  EXPECT_EQ(counted, 60);
  for (const WorkerClock& clock : stats.clocks) {
    EXPECT_EQ(clock.clock, 20);
    EXPECT_FALSE(clock.active);
  }
}

TEST_F(GradientPushTest, AWorkerThatWaitsHoldsUpNobodyElse) {
  const auto server =
      StartServer({.sync_timeout_seconds = 60, .num_workers = 2}, "sgd");
  GradientClient first(server, 0), second(server, 1);
  const NamedTensors start = Model(0);
  ASSERT_TRUE(first.Join(start, {}).ok());
  ASSERT_TRUE(second.Join(start, {}).ok());
  const auto waiting = server.Call<&ParameterServer::PushGradients>(
      ReadOnly<GradientPush>{{.id = {.worker = 0, .sequence = 1},
                              .version = 1,
                              .gradients = start}});
  EXPECT_TRUE(server.Call<&ParameterServer::PullWeights>().Get().ok());
  EXPECT_EQ(Stats(server).version, 1);
  EXPECT_FALSE(waiting.ready());
  const auto reply = second.Push({start});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->model.version, 2);
  ASSERT_TRUE(waiting.Get().ok());
  EXPECT_EQ(waiting.Get()->model.version, 2);
}

TEST_F(GradientPushTest, AServerThatLostVersionsTakesItsWorkersBack) {
  const auto server = StartServer({.state_dir = StateFolder("lossy"),
                                   .save_every = 3,
                                   .mode = SyncMode::kAsynchronous},
                                  "sgd", {{"lr", 1}});
  GradientClient client(server, 0);
  ASSERT_TRUE(client.Join({{"w", Floats({0})}}, {}).ok());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Push({{{"w", Floats({1})}}}).ok());
  }
  EXPECT_EQ(client.version(), 4);
  const auto pid = static_cast<pid_t>(nodes_.Info(server).pid());
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  // Saved was version 3.
  const auto reply = client.Push({{{"w", Floats({1})}}});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_FALSE(reply->accepted);
  EXPECT_EQ(reply->model.version, 3);
  EXPECT_THAT(Values(reply->model.weights.value[0].second), ElementsAre(-2));
  const auto next = client.Push({{{"w", Floats({1})}}});
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(next->accepted);
  EXPECT_THAT(Values(next->model.weights.value[0].second), ElementsAre(-3));
}

TEST_F(GradientPushTest, AStopSavesWhatIsNotSavedYet) {
  const ServerOptions options = {.state_dir = StateFolder("stop"),
                                 .save_every = 10,
                                 .mode = SyncMode::kAsynchronous};
  const auto first =
      StartServer(options, "sgd", {{"lr", 1}, {"momentum", 0.5}});
  GradientClient client(first, 0);
  ASSERT_TRUE(client.Join({{"w", Floats({0})}}, {}).ok());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(client.Push({{{"w", Floats({1})}}}).ok());
  }
  ASSERT_TRUE(StopParameterServer(first).ok());
  const auto second =
      StartServer(options, "sgd", {{"lr", 1}, {"momentum", 0.5}});
  GradientClient next(second, 0);
  const auto joined = next.Join({{"w", Floats({0})}}, {});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(next.version(), 3);
  // Steps of 1, 1.5 and, for it goes on with its momentum, 1.75.
  EXPECT_THAT(Values(joined->value[0].second), ElementsAre(-2.5));
  const auto reply = next.Push({{{"w", Floats({1})}}});
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(Values(reply->model.weights.value[0].second), ElementsAre(-4.25));
}

TEST_F(GradientPushTest, TheServerPullsGradientsAndPushesWeights) {
  StartWorkers(3);
  const auto server = StartServer({}, "sgd", {{"lr", 0.5}});
  const auto sync = [&] {
    return server.Call<&ParameterServer::SyncGradientsFromWorkers>(handles_)
        .Get();
  };
  EXPECT_EQ(sync().status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(
      server.Call<&ParameterServer::StartFromWorkers>(handles_).Get().ok());
  const NamedTensors start = WeightsOf(0);
  EXPECT_TRUE(SameBits(start[0].second, Model(0)[0].second));
  const auto result = sync();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->version, 2);
  EXPECT_EQ(result->num_workers, 3);
  const NamedTensors weights = WeightsOf(1);
  EXPECT_TRUE(SameBits(weights[0].second, WeightsOf(2)[0].second));
  for (int64_t i = 0; i < kElements; i += 997) {
    double mean = 0;
    for (int worker = 0; worker < 3; ++worker) {
      mean += GradientOf(start, worker, 0)[0].second[i].item<double>() / 3;
    }
    EXPECT_NEAR(weights[0].second[i].item<double>(),
                start[0].second[i].item<double>() - 0.5 * mean, 1e-6);
  }
  ASSERT_TRUE(workers_[1].Call<&Worker::Spoil>(true).Get().ok());
  EXPECT_THAT(sync().status().ToString(),
              AllOf(HasSubstr("worker 1 (Worker"), HasSubstr("'w'"),
                    HasSubstr("infinite or NaN")));
  ASSERT_TRUE(workers_[1].Call<&Worker::Spoil>(false).Get().ok());
  ASSERT_TRUE(sync().ok());
  const SyncStats stats = Stats(server);
  EXPECT_EQ(stats.version, 3);
  EXPECT_EQ(stats.num_syncs, 2);
  EXPECT_EQ(stats.contributions_accepted, 6);
  EXPECT_EQ(stats.gradients.steps, 2);
}

TEST_F(GradientPushTest, APulledStepIsTakenOnceForItsId) {
  StartWorkers(2);
  const auto server = StartServer({.state_dir = StateFolder("once")}, "sgd");
  ASSERT_TRUE(
      server.Call<&ParameterServer::StartFromWorkers>(handles_).Get().ok());
  const auto sync = [&](const std::string& id) {
    return server.With({.max_retries = -1})
        .Call<&ParameterServer::SyncOnce>(handles_, id)
        .Get();
  };
  ASSERT_TRUE(sync("a").ok());
  const auto pid = static_cast<pid_t>(nodes_.Info(server).pid());
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  const auto again = sync("a");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->repeated);
  EXPECT_EQ(again->version, 2);
  EXPECT_EQ(Stats(server).num_syncs, 1);
  EXPECT_EQ(sync("b")->version, 3);
}

TEST_F(GradientPushTest, APulledStepThatCannotBeSavedIsTakenOnceForItsId) {
  StartWorkers(2);
  const std::string folder = StateFolder("unsaved");
  const auto server = StartServer({.state_dir = folder}, "sgd");
  ASSERT_TRUE(
      server.Call<&ParameterServer::StartFromWorkers>(handles_).Get().ok());
  const auto sync = [&] {
    return server.Call<&ParameterServer::SyncOnce>(handles_, "a").Get();
  };
  // A folder in the file's place.
  const std::string next = folder + "/server.state.next";
  std::filesystem::create_directories(next);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(sync().status().ToString(),
                HasSubstr("save the parameter server's state"));
  }
  std::filesystem::remove(next);
  const auto again = sync();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->repeated);
  EXPECT_EQ(again->version, 2);
  EXPECT_EQ(Stats(server).num_syncs, 1);
}

TEST_F(GradientPushTest, StrategiesSayWhatTheyTake) {
  StartWorkers(1);
  const auto weights = CreateParameterServer(cluster_, "average");
  ASSERT_TRUE(weights.ok()) << weights.status();
  const auto refused =
      weights->Call<&ParameterServer::SyncGradientsFromWorkers>(handles_)
          .Get()
          .status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("strategy average takes weights, not gradients"),
                    HasSubstr("adagrad, adam, adamw, sgd")));
  EXPECT_EQ(GradientClient(*weights, 0).Join(Model(0), {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const auto gradients = StartServer({});
  EXPECT_THAT(gradients.Call<&ParameterServer::SyncFromWorkers>(handles_)
                  .Get()
                  .status()
                  .ToString(),
              AllOf(HasSubstr("FAILED_PRECONDITION"),
                    HasSubstr("strategy adam takes gradients, not weights"),
                    HasSubstr("average")));
  EXPECT_THAT(CreateParameterServer(cluster_, "average", {},
                                    {.mode = SyncMode::kAsynchronous})
                  .status()
                  .ToString(),
              HasSubstr("strategy 'average' takes weights"));
  EXPECT_THAT(CreateParameterServer(
                  cluster_, "adam", {},
                  {.mode = SyncMode::kAsynchronous, .max_staleness = 1})
                  .status()
                  .ToString(),
              HasSubstr("needs num_workers"));
  GradientClient client(gradients, 0);
  EXPECT_THAT(client.Push({Model(0)}).status().ToString(),
              HasSubstr("call Join"));
  ASSERT_TRUE(client.Join(Model(0), {}).ok());
  EXPECT_THAT(client.Push({Model(0)}).status().ToString(),
              HasSubstr("num_workers does not say"));
}

}  // namespace
}  // namespace miniray::ps

TEST_CLUSTER_MAIN()
