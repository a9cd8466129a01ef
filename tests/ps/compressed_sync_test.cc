// Compressed weights with real worker processes.

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "ATen/ops/arange.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/parameter_server.h"
#include "tests/ps/exchange_worker.h"
#include "tests/ps/survival.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/base/readme_code.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::ps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kElements = 100'000;  // Enough to lie in shared memory.
constexpr CompressionOptions kFp16{.method = Compression::kFp16};
constexpr CompressionOptions kInt8{.method = Compression::kInt8};
constexpr CompressionOptions kTopK{.method = Compression::kTopK};

// One without the two methods.
class PlainWorker {
 public:
  NamedTensors GetWeights() { return {{"w", Floats({1})}}; }
  void SetWeights(NamedTensors weights) {}
};
MINIRAY_ACTOR(PlainWorker, Constructor<>, &PlainWorker::GetWeights,
              &PlainWorker::SetWeights);

at::Tensor Wave(double phase) {
  return at::arange(kElements).mul(0.001).add(phase).sin().to(at::kFloat);
}

class CompressedSyncTest : public ::testing::Test {
 protected:
  void StartWorkers(int count) {
    for (int i = 0; i < count; ++i) {
      auto worker = cluster_.CreateActor<Worker>(
          {.resources = {.cpu = 0}},
          NamedTensors{{"w", Wave(i)}, {"n", Ints({i})}});
      ASSERT_TRUE(worker.ok()) << worker.status();
      workers_.push_back(*worker);
      handles_.push_back(*worker);
    }
  }

  ActorHandle<ParameterServer> StartServer(
      const ServerOptions& options, const std::string& strategy = "average",
      const StrategyOptions& strategy_options = {}) {
    auto server =
        CreateParameterServer(cluster_, strategy, strategy_options, options);
    EXPECT_TRUE(server.ok()) << server.status();
    return *server;
  }

  void Train(int step) {
    for (size_t i = 0; i < workers_.size(); ++i) {
      const NamedTensors update = {
          {"w", Wave(static_cast<double>(i) + 10.0 * step).mul(0.01)},
          {"n", Ints({1})}};
      const absl::Status trained = workers_[i].Call<&Worker::Add>(update).Get();
      ASSERT_TRUE(trained.ok()) << trained;
    }
  }

  NamedTensors WeightsOf(size_t worker) {
    auto weights = workers_[worker].Call<&Worker::GetWeights>().Get();
    EXPECT_TRUE(weights.ok()) << weights.status();
    return *std::move(weights);
  }

  void ExpectAllTheSame() {
    const NamedTensors first = WeightsOf(0);
    for (size_t i = 1; i < workers_.size(); ++i) {
      const NamedTensors other = WeightsOf(i);
      for (size_t t = 0; t < first.size(); ++t) {
        EXPECT_TRUE(SameBits(other[t].second, first[t].second)) << i;
      }
    }
  }

  TestCluster nodes_{{.node_cpus = {64},
                      .head = {.max_restart_delay = absl::Milliseconds(100)}}};
  Cluster cluster_ = nodes_.Connect();
  std::vector<ActorHandle<Worker>> workers_;
  std::vector<AnyActorHandle> handles_;
};

TEST_F(CompressedSyncTest, SavesBytesAndLeavesAllWithTheSameBits) {
  StartWorkers(3);
  const auto server = StartServer({.from_workers = kInt8, .to_workers = kFp16});
  auto sync = [&] {
    auto result =
        server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get();
    EXPECT_TRUE(result.ok()) << result.status();
    return *result;
  };
  constexpr int64_t kModel = kElements * 4 + 8;
  SyncResult result = sync();  // In full.
  EXPECT_EQ(result.bytes, 2 * 3 * kModel);
  EXPECT_EQ(result.bytes_saved, 0);
  ExpectAllTheSame();
  Train(1);
  result = sync();
  // 391 scales of int8, and fp16; the counter as it is.
  constexpr int64_t kFrom = kElements + 4 * 391 + 8;
  constexpr int64_t kTo = kElements * 2 + 8;
  EXPECT_EQ(result.bytes, 3 * (kFrom + kTo));
  EXPECT_EQ(result.bytes_saved, 3 * (2 * kModel - kFrom - kTo));
  ExpectAllTheSame();
  const SyncStats stats = *server.Call<&ParameterServer::GetStats>().Get();
  EXPECT_EQ(stats.bytes_pulled, 3 * (kModel + kFrom));
  EXPECT_EQ(stats.bytes_pushed, 3 * (kModel + kTo));
  EXPECT_EQ(stats.bytes_saved_pull, 3 * (kModel - kFrom));
  EXPECT_EQ(stats.bytes_saved_push, 3 * (kModel - kTo));
  // The mean of three waves, each with its update, up to int8's steps: of
  // 0.01 / 127, half of one for each worker.
  const std::vector<double> values = Values(WeightsOf(0)[0].second);
  for (int64_t i = 0; i < kElements; i += 997) {
    double expected = 0;
    for (int k = 0; k < 3; ++k) {
      const double x = 0.001 * static_cast<double>(i) + k;
      expected += (std::sin(x) + 0.01 * std::sin(x + 10)) / 3;
    }
    ASSERT_NEAR(values[static_cast<size_t>(i)], expected, 6e-5);
  }
  EXPECT_THAT(Values(WeightsOf(0)[1].second), ElementsAre(3));
}

TEST_F(CompressedSyncTest, WorkersThatCannotAreToldWhatTheyLack) {
  auto plain = cluster_.CreateActor<PlainWorker>({.resources = {.cpu = 0}});
  ASSERT_TRUE(plain.ok());
  const auto server = StartServer({.to_workers = kFp16});
  const std::vector<AnyActorHandle> handles = {*plain};
  EXPECT_THAT(server.Call<&ParameterServer::SyncFromWorkers>(handles)
                  .Get()
                  .status()
                  .ToString(),
              AllOf(HasSubstr("FAILED_PRECONDITION"),
                    HasSubstr("worker 0 (PlainWorker"),
                    HasSubstr("has no method SendWeights"),
                    HasSubstr("compressed weights")));
  // Weights that travel as they are need nothing.
  const auto other = StartServer({});
  EXPECT_TRUE(
      other.Call<&ParameterServer::SyncFromWorkers>(handles).Get().ok());
}

TEST_F(CompressedSyncTest, WrongOptionsAreErrorsOnTheDriver) {
  EXPECT_THAT(
      CreateParameterServer(
          cluster_, "average", {},
          {.from_workers = {.method = Compression::kTopK, .top_k_fraction = 2}})
          .status()
          .ToString(),
      HasSubstr("from_workers.top_k_fraction"));
  EXPECT_THAT(CreateParameterServer(cluster_, "sgd", {}, {.to_workers = kFp16})
                  .status()
                  .ToString(),
              HasSubstr("have no effect"));
}

TEST_F(CompressedSyncTest, StartAndPushedWeightsReachWorkersExactly) {
  StartWorkers(2);
  const auto server =
      StartServer({.from_workers = kTopK, .to_workers = kTopK}, "fedadam");
  ASSERT_TRUE(
      server.Call<&ParameterServer::StartFromWorkers>(handles_).Get().ok());
  EXPECT_TRUE(SameBits(WeightsOf(1)[0].second, Wave(0)));
  for (int i = 0; i < 2; ++i) {
    Train(i);
    ASSERT_TRUE(
        server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get().ok());
    ExpectAllTheSame();
  }
  // Worker 0's, not what the server made of them.
  Train(2);
  const at::Tensor own = WeightsOf(0)[0].second;
  ASSERT_TRUE(
      server.Call<&ParameterServer::StartFromWorkers>(handles_).Get().ok());
  EXPECT_TRUE(SameBits(WeightsOf(1)[0].second, own));
  ASSERT_TRUE(server
                  .Call<&ParameterServer::PushWeights>(
                      NamedTensors{{"w", Wave(5)}, {"n", Ints({0})}})
                  .Get()
                  .ok());
  ASSERT_TRUE(
      server.Call<&ParameterServer::PushToWorkers>(handles_).Get().ok());
  EXPECT_TRUE(SameBits(WeightsOf(0)[0].second, Wave(5)));
  EXPECT_TRUE(SameBits(WeightsOf(1)[0].second, Wave(5)));
}

// Trains and synchronises; kills the server `kills` times, somewhere. Returns
// what worker 0 has in the end.
class CompressedSurvivalTest : public CompressedSyncTest {
 protected:
  NamedTensors Run(const std::string& name, int kills, uint64_t seed) {
    constexpr int kSyncs = 12;
    Killer killer(&nodes_, kills, kSyncs, seed);
    StartWorkers(3);
    const std::string folder = absl::StrCat(testing::TempDir(), "/", name);
    std::filesystem::remove_all(folder);
    const auto server = StartServer(
        {.state_dir = folder, .from_workers = kTopK, .to_workers = kInt8},
        "momentum", {{"momentum", 0.5}});
    EXPECT_TRUE(server.WaitReady().ok());
    for (int sync = 0; sync < kSyncs; ++sync) {
      Train(sync);
      auto call =
          server.With({.max_retries = -1})
              .Call<&ParameterServer::SyncOnce>(handles_, absl::StrCat(sync));
      if (killer.IsTime()) killer.Kill(server, absl::Milliseconds(20));
      const auto result = call.Get();
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok()) return {};
    }
    EXPECT_EQ(killer.kills_left(), 0);
    ExpectAllTheSame();
    NamedTensors weights = WeightsOf(0);
    EXPECT_TRUE(server.Kill().ok());
    for (const auto& worker : workers_) EXPECT_TRUE(worker.Kill().ok());
    workers_.clear();
    handles_.clear();
    return weights;
  }
};

TEST_F(CompressedSurvivalTest, NothingIsLostNorAppliedTwice) {
  ExpectSurvives(6, [this](const std::string& folder, int kills,
                           uint64_t seed) { return Run(folder, kills, seed); });
}

TEST(ReadmeTest, ShowsTheWorkerOfThisTest) {
  ExpectReadmeShows("ps/README.md", "tests/ps/exchange_worker.h");
}

}  // namespace
}  // namespace miniray::ps

TEST_CLUSTER_MAIN()
