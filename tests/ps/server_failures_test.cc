// The parameter server when processes die, its own and the workers'.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/full.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/parameter_server.h"
#include "tests/ps/named_pipe.h"
#include "tests/ps/survival.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::ps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kElements = 100'000;  // Enough to lie in shared memory.

class Worker {
 public:
  explicit Worker(int64_t id) : id_(id) {
    weights_ = {{"w", at::full({kElements}, static_cast<double>(id))}};
  }
  NamedTensors GetWeights() { return weights_; }
  absl::Status SetWeights(NamedTensors weights) {
    if (!pipe_of_set_.empty()) BlockOn(std::exchange(pipe_of_set_, ""));
    if (sets_to_fail_ > 0) {
      --sets_to_fail_;
      return absl::InternalError("cannot set");
    }
    weights_ = std::move(weights);
    ++num_sets_;
    return absl::OkStatus();
  }
  // What training does: it depends on the weights, the worker and the step.
  void Train(int64_t step) {
    at::Tensor& w = weights_.front().second;
    w = w.mul(0.75).add(at::arange(kElements).remainder(7 + id_ + step % 5));
  }
  int64_t NumSets() { return num_sets_; }
  // Until somebody has opened the named pipe for writing and closed it again.
  void BlockOn(const std::string& pipe) {
    const int fd = open(pipe.c_str(), O_RDONLY | O_CLOEXEC);
    char byte;
    while (read(fd, &byte, 1) > 0) {
    }
    close(fd);
  }
  void BlockNextSetOn(std::string pipe) { pipe_of_set_ = std::move(pipe); }
  void FailNextSets(int64_t count) { sets_to_fail_ = count; }
  int64_t Pid() { return getpid(); }

 private:
  const int64_t id_;
  std::string pipe_of_set_;
  int64_t sets_to_fail_ = 0;
  NamedTensors weights_;
  int64_t num_sets_ = 0;
};
MINIRAY_ACTOR(Worker, Constructor<int64_t>, &Worker::GetWeights,
              &Worker::SetWeights, &Worker::Train, &Worker::NumSets,
              &Worker::BlockOn, &Worker::BlockNextSetOn, &Worker::FailNextSets,
              &Worker::Pid);

// One that comes back with what it had.
class KeepingWorker {
 public:
  explicit KeepingWorker(double value) : value_(value) {}
  NamedTensors GetWeights() { return {{"w", at::full({4}, value_)}}; }
  void SetWeights(const NamedTensors& weights) {
    value_ = weights[0].second[0].item<double>();
  }
  int64_t Pid() const { return getpid(); }

  double SaveState() const { return value_; }
  void RestoreState(double value) { value_ = value; }

 private:
  double value_;
};
MINIRAY_ACTOR(KeepingWorker, Constructor<double>, &KeepingWorker::GetWeights,
              &KeepingWorker::SetWeights, &KeepingWorker::Pid);

class ServerFailuresTest : public testing::Test {
 protected:
  void StartWorkers(int count, int max_restarts = 0) {
    for (int i = 0; i < count; ++i) {
      auto worker = cluster_.CreateActor<Worker>(
          {.resources = {.cpu = 0}, .max_restarts = max_restarts}, i);
      ASSERT_TRUE(worker.ok()) << worker.status();
      workers_.push_back(*worker);
      handles_.push_back(*worker);
    }
  }

  ActorHandle<ParameterServer> StartServer(
      const ServerOptions& options, const std::string& strategy = "average") {
    auto server = CreateParameterServer(cluster_, strategy,
                                        strategy == "momentum"
                                            ? StrategyOptions{{"momentum", 0.5}}
                                            : StrategyOptions(),
                                        options);
    EXPECT_TRUE(server.ok()) << server.status();
    return *server;
  }

  void Train(int64_t step) {
    std::vector<ObjectRef<void>> calls;
    for (const auto& worker : workers_) {
      calls.push_back(worker.Call<&Worker::Train>(step));
    }
    const absl::Status trained = GetAll(calls);
    ASSERT_TRUE(trained.ok()) << trained;
  }

  // Returns when it answers nobody any more.
  void KillWorker(size_t worker) {
    const auto pid = workers_[worker].Call<&Worker::Pid>().Get();
    ASSERT_TRUE(pid.ok()) << pid.status();
    ASSERT_TRUE(workers_[worker].Kill().ok());
    ASSERT_TRUE(Eventually([&] { return !ProcessLives(*pid); }));
  }

  // Returns when its next process is there, with the weights it begins with.
  void RestartWorker(size_t worker) {
    const auto pid = workers_[worker].Call<&Worker::Pid>().Get();
    ASSERT_TRUE(pid.ok()) << pid.status();
    ASSERT_EQ(kill(static_cast<pid_t>(*pid), SIGKILL), 0);
    ASSERT_TRUE(Eventually([&] {
      const auto next = workers_[worker].Call<&Worker::Pid>().Get();
      return next.ok() && *next != *pid;
    }));
  }

  // Waits until it has been sent weights once, which are worker 0's.
  void ExpectBroughtUp(size_t worker) {
    ASSERT_TRUE(Eventually([&] {
      const auto sets = workers_[worker]
                            .With({.max_retries = -1})
                            .Call<&Worker::NumSets>()
                            .Get();
      return sets.ok() && *sets == 1;
    }));
    EXPECT_TRUE(SameBits(WeightsOf(worker)[0].second, WeightsOf(0)[0].second));
  }

  NamedTensors WeightsOf(size_t worker) {
    auto weights = workers_[worker].Call<&Worker::GetWeights>().Get();
    EXPECT_TRUE(weights.ok()) << weights.status();
    return *std::move(weights);
  }

  std::string StateFolder(absl::string_view name) {
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

// Trains and synchronises; kills the server `kills` times, somewhere.
class SurvivalTest : public ServerFailuresTest,
                     public testing::WithParamInterface<std::string> {
 protected:
  NamedTensors Run(const std::string& folder, int kills, uint64_t seed) {
    constexpr int kSyncs = 40;
    StartWorkers(3);
    Killer killer(&nodes_, kills, kSyncs, seed);
    const ActorHandle<ParameterServer> server =
        StartServer({.state_dir = StateFolder(folder)}, GetParam());
    EXPECT_TRUE(server.WaitReady().ok());
    int repeated = 0;
    for (int sync = 0; sync < kSyncs; ++sync) {
      Train(sync);
      auto call = server.With({.max_retries = -1})
                      .Call<&ParameterServer::SyncOnce>(
                          handles_, absl::StrCat("sync-", sync));
      if (killer.IsTime()) {
        // Before, while or after it pulls, saves, pushes.
        killer.Kill(server, absl::Milliseconds(20));
      }
      const auto result = call.Get();
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok()) return {};
      EXPECT_EQ(result->version, sync + 1);
      repeated += result->repeated;
    }
    EXPECT_EQ(killer.kills_left(), 0);
    const auto stats = server.With({.max_retries = -1})
                           .Call<&ParameterServer::GetStats>()
                           .Get();
    EXPECT_EQ(stats->version, kSyncs);
    EXPECT_EQ(stats->num_syncs, kSyncs);
    EXPECT_EQ(stats->num_restarts, kills);
    RecordProperty("pushes_repeated", repeated);
    NamedTensors weights = WeightsOf(0);
    for (size_t i = 1; i < workers_.size(); ++i) {
      EXPECT_TRUE(SameBits(WeightsOf(i)[0].second, weights[0].second));
    }
    EXPECT_TRUE(server.Kill().ok());
    for (const auto& worker : workers_) EXPECT_TRUE(worker.Kill().ok());
    workers_.clear();
    handles_.clear();
    return weights;
  }
};

TEST_P(SurvivalTest, KilledTwentyTimesItEndsWhereItWouldHave) {
  ExpectSurvives(20,
                 [this](const std::string& folder, int kills, uint64_t seed) {
                   return Run(folder, kills, seed);
                 });
}
INSTANTIATE_TEST_SUITE_P(Strategies, SurvivalTest,
                         testing::Values("average", "momentum"));

TEST_F(ServerFailuresTest, ASynchronisationIsDoneOnceForItsId) {
  StartWorkers(2);
  const auto server = StartServer({.state_dir = StateFolder("once")});
  auto sync = [&](const std::string& id) {
    auto result = server.Call<&ParameterServer::SyncOnce>(handles_, id).Get();
    EXPECT_TRUE(result.ok()) << result.status();
    return *result;
  };
  EXPECT_FALSE(sync("a").repeated);
  const NamedTensors first = WeightsOf(0);
  // The reply was lost, say: the workers have not trained, nor do they change.
  EXPECT_TRUE(sync("a").repeated);
  EXPECT_EQ(sync("a").version, 1);
  EXPECT_TRUE(SameBits(WeightsOf(1)[0].second, first[0].second));
  Train(1);
  EXPECT_FALSE(sync("b").repeated);
  EXPECT_EQ(sync("b").version, 2);
  EXPECT_EQ(server.Call<&ParameterServer::GetStats>().Get()->num_syncs, 2);
  EXPECT_THAT(std::string(server.Call<&ParameterServer::SyncOnce>(handles_, "")
                              .Get()
                              .status()
                              .message()),
              HasSubstr("id cannot be empty"));
}

TEST_F(ServerFailuresTest, AnotherServerGoesOnWithTheFolder) {
  StartWorkers(2);
  const std::string folder = StateFolder("next");
  const auto first = StartServer({.state_dir = folder}, "momentum");
  for (int i = 0; i < 3; ++i) {
    Train(i);
    ASSERT_TRUE(
        first.Call<&ParameterServer::SyncFromWorkers>(handles_).Get().ok());
  }
  const NamedTensors weights = WeightsOf(0);
  ASSERT_TRUE(first.Kill().ok());
  const auto second = StartServer({.state_dir = folder}, "momentum");
  const auto pulled = second.Call<&ParameterServer::PullWeights>().Get();
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_TRUE(SameBits((*pulled)[0].second, weights[0].second));
  EXPECT_EQ(second.Call<&ParameterServer::GetStats>().Get()->version, 3);
  // Of another strategy: an error that says what to do.
  const auto other = StartServer({.state_dir = folder}, "average");
  EXPECT_THAT(other.WaitReady().ToString(),
              AllOf(HasSubstr(folder), HasSubstr("momentum"),
                    HasSubstr("use another folder")));
}

TEST_F(ServerFailuresTest, OneOfThreeSynchronisationsIsSaved) {
  StartWorkers(2);
  const auto server = StartServer(
      {.state_dir = StateFolder("third"), .save_every = 3}, "momentum");
  const auto stats = [&] {
    return *server.With({.max_retries = -1})
                .Call<&ParameterServer::GetStats>()
                .Get();
  };
  const int64_t saves = stats().num_saves;  // That it is there.
  NamedTensors third;
  for (int sync = 1; sync <= 5; ++sync) {
    Train(sync);
    ASSERT_TRUE(
        server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get().ok());
    EXPECT_EQ(stats().num_saves, saves + (sync >= 3 ? 1 : 0)) << sync;
    if (sync == 3) third = WeightsOf(0);
  }
  const auto pid = static_cast<pid_t>(nodes_.Info(server).pid());
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  const auto pulled = server.With({.max_retries = -1})
                          .Call<&ParameterServer::PullWeights>()
                          .Get();
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(stats().version, 3);
  EXPECT_EQ(stats().num_syncs, 3);
  EXPECT_TRUE(SameBits((*pulled)[0].second, third[0].second));
}

TEST_F(ServerFailuresTest, AStopSavesWhatIsNotSavedYet) {
  StartWorkers(2);
  const ServerOptions options = {.state_dir = StateFolder("stop"),
                                 .save_every = 10};
  const auto sync = [&](const ActorHandle<ParameterServer>& server) {
    return server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get();
  };
  const auto version = [](const ActorHandle<ParameterServer>& server) {
    return server.Call<&ParameterServer::GetStats>().Get()->version;
  };
  const auto first = StartServer(options, "momentum");
  for (int i = 0; i < 4; ++i) {
    Train(i);
    ASSERT_TRUE(sync(first).ok());
  }
  ASSERT_TRUE(StopParameterServer(first).ok());
  const NamedTensors weights = WeightsOf(0);
  const auto second = StartServer(options, "momentum");
  EXPECT_EQ(version(second), 4);
  const auto pulled = second.Call<&ParameterServer::PullWeights>().Get();
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_TRUE(SameBits((*pulled)[0].second, weights[0].second));
  // One that is killed has what was saved by hand.
  ASSERT_TRUE(sync(second).ok());
  ASSERT_TRUE(second.Call<&ParameterServer::SaveNow>().Get().ok());
  ASSERT_TRUE(sync(second).ok());
  ASSERT_TRUE(second.Kill().ok());
  const auto third = StartServer(options, "momentum");
  EXPECT_EQ(version(third), 5);
}

TEST_F(ServerFailuresTest, AStopThatCannotSaveSaysSoAndStops) {
  StartWorkers(1);
  const std::string folder = StateFolder("unstoppable");
  const auto server = StartServer({.state_dir = folder, .save_every = 2});
  ASSERT_TRUE(
      server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get().ok());
  const int64_t pid = nodes_.Info(server).pid();
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory_symlink("/proc/none", folder);
  EXPECT_THAT(
      StopParameterServer(server).ToString(),
      AllOf(HasSubstr("save the parameter server's state"), HasSubstr(folder)));
  EXPECT_TRUE(Eventually([&] { return !ProcessLives(pid); }));
  std::filesystem::remove(folder);
}

TEST_F(ServerFailuresTest, AStateFromBeforeTheFirstWeightsForgetsThem) {
  StartWorkers(2);
  const auto server = StartServer({}, "momentum");
  const auto sync = [&] {
    return server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get();
  };
  const auto before = server.Call<&ParameterServer::ExportState>().Get();
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_TRUE(sync().ok());
  Train(1);
  const absl::Status imported =
      server.Call<&ParameterServer::ImportState>(*before).Get();
  ASSERT_TRUE(imported.ok()) << imported;
  // A first mean, without momentum.
  const at::Tensor expected =
      WeightsOf(0)[0].second.add(WeightsOf(1)[0].second).div(2);
  const auto result = sync();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->version, 1);
  EXPECT_TRUE(SameBits(WeightsOf(0)[0].second, expected));
}

TEST_F(ServerFailuresTest, AFolderThatCannotBeWrittenIsAnErrorAtOnce) {
  const auto server = StartServer({.state_dir = "/proc/none"});
  EXPECT_THAT(server.WaitReady().ToString(), HasSubstr("/proc/none"));
}

TEST_F(ServerFailuresTest, AStateThatCannotBeSavedIsPushedToNobody) {
  StartWorkers(2);
  const std::string folder = StateFolder("unsaved");
  const std::string aside = StateFolder("aside");
  const auto server = StartServer({.state_dir = folder}, "momentum");
  ASSERT_TRUE(server.WaitReady().ok());
  auto sync = [&](const std::string& id) {
    return server.Call<&ParameterServer::SyncOnce>(handles_, id).Get();
  };
  ASSERT_TRUE(sync("a").ok());
  Train(1);
  // Whatever one may write elsewhere, one may not there.
  std::filesystem::rename(folder, aside);
  std::filesystem::create_directory_symlink("/proc/none", folder);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(sync("b").status().ToString(),
                AllOf(HasSubstr("save the parameter server's state"),
                      HasSubstr(folder)));
  }
  EXPECT_EQ(*workers_[0].Call<&Worker::NumSets>().Get(), 1);
  EXPECT_EQ(server.Call<&ParameterServer::GetStats>().Get()->num_syncs, 1);
  std::filesystem::remove(folder);
  std::filesystem::rename(aside, folder);
  const auto result = sync("b");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->repeated);  // Aggregated once.
  EXPECT_EQ(result->version, 2);
  EXPECT_EQ(server.Call<&ParameterServer::GetStats>().Get()->num_syncs, 2);
  EXPECT_TRUE(SameBits(WeightsOf(1)[0].second, WeightsOf(0)[0].second));
}

// It would be done twice when it is called again.
TEST_F(ServerFailuresTest, WithoutAnIdWhatCannotBeSavedLeavesNoTrace) {
  const auto run = [&](bool disturb) {
    StartWorkers(2);
    const std::string folder = StateFolder("traceless");
    const auto server =
        CreateParameterServer(cluster_, "fedavgm", {{"momentum", 0.9}},
                              {.state_dir = folder, .save_every = 2});
    EXPECT_TRUE(server.ok()) << server.status();
    EXPECT_TRUE(
        server->Call<&ParameterServer::StartFromWorkers>(handles_).Get().ok());
    const auto sync = [&] {
      return server->Call<&ParameterServer::SyncFromWorkers>(handles_).Get();
    };
    for (int step = 0; step < 4; ++step) {
      Train(step);
      if (disturb && step % 2 == 0) {  // The start is the first change.
        // A folder in the file's place.
        const std::string next = folder + "/server.state.next";
        std::filesystem::create_directories(next);
        EXPECT_THAT(sync().status().ToString(),
                    HasSubstr("save the parameter server's state"));
        std::filesystem::remove(next);
      }
      const auto result = sync();
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok()) return NamedTensors();
      EXPECT_EQ(result->version, step + 2);
    }
    EXPECT_EQ(server->Call<&ParameterServer::GetStats>().Get()->num_syncs, 4);
    NamedTensors weights = WeightsOf(1);
    EXPECT_TRUE(server->Kill().ok());
    for (const auto& worker : workers_) EXPECT_TRUE(worker.Kill().ok());
    workers_.clear();
    handles_.clear();
    return weights;
  };
  const NamedTensors disturbed = run(true);
  ASSERT_FALSE(disturbed.empty());
  EXPECT_TRUE(SameBits(disturbed[0].second, run(false)[0].second));
}

TEST_F(ServerFailuresTest, WrongOptionsAreErrorsOnTheDriver) {
  for (const ServerOptions& wrong :
       {ServerOptions{.min_workers = -1},
        ServerOptions{.sync_timeout_seconds = -2},
        ServerOptions{.state_dir = "x", .save_every = 0},
        ServerOptions{.save_every = 2}}) {
    EXPECT_EQ(
        CreateParameterServer(cluster_, "average", {}, wrong).status().code(),
        absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(ServerFailuresTest, ADeadWorkerIsLeftOutAndNamed) {
  StartWorkers(3);
  const auto server = StartServer({.min_workers = 2});
  KillWorker(1);
  const auto result =
      server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->num_lost, 1);
  // Of 0 and 2.
  EXPECT_EQ(WeightsOf(0)[0].second[0].item<double>(), 1);
  EXPECT_EQ(WeightsOf(2)[0].second[0].item<double>(), 1);
  const SyncStats stats = *server.Call<&ParameterServer::GetStats>().Get();
  EXPECT_EQ(stats.contributions_lost, 1);
  EXPECT_EQ(stats.contributions_accepted, 2);
  EXPECT_THAT(stats.warnings, ElementsAre(HasSubstr("worker 1 (Worker")));
  // One more, and it is too few.
  KillWorker(2);
  EXPECT_THAT(server.Call<&ParameterServer::SyncFromWorkers>(handles_)
                  .Get()
                  .status()
                  .ToString(),
              AllOf(HasSubstr("1 of 3 workers are left"),
                    HasSubstr("min_workers is 2")));
}

TEST_F(ServerFailuresTest, ALateWorkerIsLeftOutAndGetsTheWeightsLater) {
  StartWorkers(3);
  const std::string pipe = StateFolder("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto blocked = workers_[2].Call<&Worker::BlockOn>(pipe);
  const int writer = OpenForWriting(pipe);
  const auto server =
      StartServer({.min_workers = 2, .sync_timeout_seconds = 0.5});
  auto result = server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->num_lost, 1);
  EXPECT_EQ(WeightsOf(0)[0].second[0].item<double>(), 0.5);
  EXPECT_EQ(WeightsOf(1)[0].second[0].item<double>(), 0.5);
  close(writer);
  ASSERT_TRUE(blocked.Get().ok());
  EXPECT_TRUE(Eventually(
      [&] { return *workers_[2].Call<&Worker::NumSets>().Get() == 1; }));
  EXPECT_TRUE(SameBits(WeightsOf(2)[0].second, WeightsOf(0)[0].second));
  EXPECT_THAT(
      server.Call<&ParameterServer::GetStats>().Get()->warnings,
      ElementsAre(AllOf(HasSubstr("worker 2 (Worker"), HasSubstr("in time"))));
}

TEST_F(ServerFailuresTest, TooManyLateWorkersFailTheSynchronisation) {
  StartWorkers(2);
  const std::string pipe = StateFolder("pipe2");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto blocked = workers_[1].Call<&Worker::BlockOn>(pipe);
  const int writer = OpenForWriting(pipe);
  const auto server = StartServer({.sync_timeout_seconds = 0.3});
  EXPECT_THAT(server.Call<&ParameterServer::SyncFromWorkers>(handles_)
                  .Get()
                  .status()
                  .ToString(),
              AllOf(HasSubstr("DEADLINE_EXCEEDED"),
                    HasSubstr("weights of 1 workers came"),
                    HasSubstr("not those of worker 1 (Worker")));
  EXPECT_EQ(*workers_[0].Call<&Worker::NumSets>().Get(), 0);
  close(writer);
  ASSERT_TRUE(blocked.Get().ok());
  EXPECT_TRUE(
      server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get().ok());
}

TEST_F(ServerFailuresTest, ARestartedWorkerGetsTheWeightsAtOnce) {
  StartWorkers(2, /*max_restarts=*/1);
  const auto server = StartServer({.min_workers = 1});
  Train(3);
  ASSERT_TRUE(
      server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get().ok());
  // It dies while it is asked.
  const std::string pipe = StateFolder("pipe3");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int64_t pid = *workers_[1].Call<&Worker::Pid>().Get();
  const auto blocked = workers_[1].Call<&Worker::BlockOn>(pipe);
  auto sync = server.Call<&ParameterServer::SyncFromWorkers>(handles_);
  // The worker is in BlockOn once its end of the pipe is open.
  const int writer = OpenForWriting(pipe);
  ASSERT_EQ(kill(static_cast<pid_t>(pid), SIGKILL), 0);
  close(writer);
  const auto result = sync.Get();
  ASSERT_TRUE(result.ok()) << result.status();
  // Nobody asks for it: the weights come by themselves.
  ExpectBroughtUp(1);
  // It has them, so it counts again.
  Train(4);
  EXPECT_EQ(
      server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get()->num_lost,
      0);
}

TEST_F(ServerFailuresTest, AWorkerThatDiesInThePushGetsTheWeightsAtOnce) {
  StartWorkers(2, /*max_restarts=*/1);
  const auto server = StartServer({.min_workers = 1});
  const std::string pipe = StateFolder("pipe4");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ASSERT_TRUE(workers_[1].Call<&Worker::BlockNextSetOn>(pipe).Get().ok());
  const int64_t pid = *workers_[1].Call<&Worker::Pid>().Get();
  auto sync = server.Call<&ParameterServer::SyncFromWorkers>(handles_);
  const int writer = OpenForWriting(pipe);
  ASSERT_EQ(kill(static_cast<pid_t>(pid), SIGKILL), 0);
  close(writer);
  const auto result = sync.Get();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->num_lost, 0);  // Its contribution had come.
  EXPECT_EQ(result->num_behind, 1);
  ExpectBroughtUp(1);
  EXPECT_EQ(WeightsOf(1)[0].second[0].item<double>(), 0.5);
  EXPECT_THAT(
      server.Call<&ParameterServer::GetStats>().Get()->warnings,
      ElementsAre(AllOf(HasSubstr("worker 1 (Worker"), HasSubstr("signal 9"))));
}

// It lives and answers, and has the weights from before: what it trains on from
// there is no contribution.
TEST_F(ServerFailuresTest,
       WhoFailsToTakeTheWeightsDoesNotCountBeforeItHasThem) {
  StartWorkers(3);
  const auto server = StartServer({.min_workers = 2});
  const auto sync = [&] {
    auto result =
        server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get();
    EXPECT_TRUE(result.ok()) << result.status();
    return *result;
  };
  // In the push, and as it is sent them again.
  ASSERT_TRUE(workers_[1].Call<&Worker::FailNextSets>(2).Get().ok());
  SyncResult result = sync();
  EXPECT_EQ(result.version, 1);
  EXPECT_EQ(result.num_lost, 0);  // Its contribution had come.
  EXPECT_EQ(result.num_behind, 1);
  EXPECT_EQ(WeightsOf(2)[0].second[0].item<double>(), 1);
  SyncStats stats = *server.Call<&ParameterServer::GetStats>().Get();
  EXPECT_EQ(stats.pushes_lost, 1);
  EXPECT_THAT(stats.warnings, ElementsAre(AllOf(HasSubstr("worker 1 (Worker"),
                                                HasSubstr("cannot set"))));
  Train(1);
  const at::Tensor expected =
      WeightsOf(0)[0].second.add(WeightsOf(2)[0].second).div(2);
  result = sync();
  EXPECT_EQ(result.num_lost, 1);
  EXPECT_EQ(result.num_behind, 1);
  EXPECT_TRUE(SameBits(WeightsOf(0)[0].second, expected));
  stats = *server.Call<&ParameterServer::GetStats>().Get();
  ASSERT_THAT(stats.warnings, SizeIs(2));
  EXPECT_THAT(stats.warnings[1], AllOf(HasSubstr("worker 1 (Worker"),
                                       HasSubstr("has not taken the weights"),
                                       HasSubstr("cannot set")));
  // This time it takes them.
  ExpectBroughtUp(1);
  Train(2);
  result = sync();
  EXPECT_EQ(result.num_lost, 0);
  EXPECT_EQ(result.num_behind, 0);
  EXPECT_TRUE(SameBits(WeightsOf(1)[0].second, WeightsOf(0)[0].second));
}

TEST_F(ServerFailuresTest, WhoFailsToTakeTheWeightsOnceGetsThemAtOnce) {
  StartWorkers(2);
  const auto server = StartServer({.min_workers = 1});
  ASSERT_TRUE(workers_[1].Call<&Worker::FailNextSets>(1).Get().ok());
  auto result = server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->num_behind, 1);
  ExpectBroughtUp(1);
  Train(1);
  result = server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->num_lost, 0);
  EXPECT_EQ(result->num_behind, 0);
}

TEST_F(ServerFailuresTest, ARestartBetweenTwoSynchronisationsIsNoticed) {
  StartWorkers(3, /*max_restarts=*/1);
  const auto server = StartServer({.min_workers = 2});
  const auto sync = [&] {
    return server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get();
  };
  ASSERT_TRUE(sync().ok());
  RestartWorker(1);
  Train(3);
  // Not of worker 1, which trains on from what it began with.
  const at::Tensor expected =
      WeightsOf(0)[0].second.add(WeightsOf(2)[0].second).div(2);
  const auto result = sync();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->num_lost, 1);
  EXPECT_TRUE(SameBits(WeightsOf(0)[0].second, expected));
  ExpectBroughtUp(1);
  EXPECT_THAT(server.Call<&ParameterServer::GetStats>().Get()->warnings,
              ElementsAre(AllOf(HasSubstr("worker 1 (Worker"),
                                HasSubstr("has restarted"))));
  Train(4);
  EXPECT_EQ(sync()->num_lost, 0);
  EXPECT_TRUE(SameBits(WeightsOf(1)[0].second, WeightsOf(2)[0].second));
}

TEST_F(ServerFailuresTest, ARestartedWorkerIsAnErrorWhereAllAreNeeded) {
  StartWorkers(2, /*max_restarts=*/1);
  const auto server = StartServer({});
  const auto sync = [&] {
    return server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get();
  };
  ASSERT_TRUE(sync().ok());
  const NamedTensors before = WeightsOf(0);
  RestartWorker(1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(
        sync().status().ToString(),
        AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("worker 1 (Worker"),
              HasSubstr("has restarted"), HasSubstr("PushToWorkers")));
  }
  EXPECT_EQ(*workers_[0].Call<&Worker::NumSets>().Get(), 1);
  // What the error says to do.
  const std::vector<AnyActorHandle> restarted = {handles_[1]};
  ASSERT_TRUE(
      server.Call<&ParameterServer::PushToWorkers>(restarted).Get().ok());
  EXPECT_TRUE(SameBits(WeightsOf(1)[0].second, before[0].second));
  EXPECT_TRUE(sync().ok());
}

TEST_F(ServerFailuresTest, AWorkerThatComesBackWithItsStateGoesOn) {
  std::vector<ActorHandle<KeepingWorker>> workers;
  for (const double value : {1, 3}) {
    const auto worker = cluster_.CreateActor<KeepingWorker>(
        {.resources = {.cpu = 0}, .max_restarts = 1}, value);
    ASSERT_TRUE(worker.ok()) << worker.status();
    workers.push_back(*worker);
    handles_.push_back(*worker);
  }
  const auto server = StartServer({});
  ASSERT_TRUE(
      server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get().ok());
  const auto patient = workers[1].With({.max_retries = -1});
  const auto pid = patient.Call<&KeepingWorker::Pid>().Get();
  ASSERT_TRUE(pid.ok()) << pid.status();
  ASSERT_EQ(kill(static_cast<pid_t>(*pid), SIGKILL), 0);
  ASSERT_TRUE(Eventually([&] {
    const auto next = patient.Call<&KeepingWorker::Pid>().Get();
    return next.ok() && *next != *pid;
  }));
  const auto result =
      server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->version, 2);
}

}  // namespace
}  // namespace miniray::ps

TEST_CLUSTER_MAIN()
