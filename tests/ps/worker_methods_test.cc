// What the parameter server asks of workers beside their weights, and what it
// does about weights that are not finite, with real worker processes.

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/parameter_server.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::ps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A worker that tells its samples and its buffers.
class TellingWorker {
 public:
  TellingWorker(NamedTensors weights, int64_t samples,
                std::vector<std::string> buffers)
      : weights_(std::move(weights)),
        samples_(samples),
        buffers_(std::move(buffers)) {}

  NamedTensors GetWeights() { return weights_; }
  void SetWeights(NamedTensors weights) { weights_ = std::move(weights); }
  absl::StatusOr<int64_t> NumSamples() {
    ++asked_;
    if (samples_ == kUnknown) return absl::InternalError("cannot count");
    return samples_;
  }
  std::vector<std::string> BufferNames() {
    ++asked_;
    return buffers_;
  }
  int Asked() const { return asked_; }

  static constexpr int64_t kUnknown = -2;

 private:
  NamedTensors weights_;
  const int64_t samples_;
  const std::vector<std::string> buffers_;
  int asked_ = 0;
};
MINIRAY_ACTOR(TellingWorker,
              Constructor<NamedTensors, int64_t, std::vector<std::string>>,
              &TellingWorker::GetWeights, &TellingWorker::SetWeights,
              &TellingWorker::NumSamples, &TellingWorker::BufferNames,
              &TellingWorker::Asked);

// One that has only what it must.
class PlainWorker {
 public:
  explicit PlainWorker(NamedTensors weights) : weights_(std::move(weights)) {}
  NamedTensors GetWeights() { return weights_; }
  void SetWeights(NamedTensors weights) { weights_ = std::move(weights); }

 private:
  NamedTensors weights_;
};
MINIRAY_ACTOR(PlainWorker, Constructor<NamedTensors>, &PlainWorker::GetWeights,
              &PlainWorker::SetWeights);

class WorkerMethodsTest : public ::testing::Test {
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

  ActorHandle<TellingWorker> AddTelling(
      float w, int64_t samples, const std::vector<std::string>& buffers = {}) {
    auto worker = cluster_->CreateActor<TellingWorker>(
        {}, NamedTensors{{"w", Floats({w})}, {"scale", Floats({w})}}, samples,
        buffers);
    EXPECT_TRUE(worker.ok()) << worker.status();
    workers_.push_back(*worker);
    return *worker;
  }

  void AddPlain(float w) {
    auto worker = cluster_->CreateActor<PlainWorker>(
        {}, NamedTensors{{"w", Floats({w})}, {"scale", Floats({w})}});
    ASSERT_TRUE(worker.ok()) << worker.status();
    workers_.push_back(*worker);
  }

  absl::StatusOr<SyncResult> Sync() {
    return server_.Call<&ParameterServer::SyncFromWorkers>(workers_).Get();
  }

  std::string SyncError() {
    const auto result = Sync();
    return result.ok() ? "" : std::string(result.status().message());
  }

  // Of tensor `index`.
  double WeightOf(size_t worker, size_t index = 0) {
    auto weights =
        workers_[worker].CallByName<NamedTensors>("GetWeights").Get();
    EXPECT_TRUE(weights.ok()) << weights.status();
    return Values((*weights)[index].second)[0];
  }

  void SetWeight(size_t worker, float w) {
    ASSERT_TRUE(workers_[worker]
                    .CallByName<void>("SetWeights",
                                      NamedTensors{{"w", Floats({w})},
                                                   {"scale", Floats({w})}})
                    .Get()
                    .ok());
  }

  void TearDown() override {
    for (const auto& worker : workers_) (void)worker.Kill();
    if (!server_.empty()) (void)server_.Kill();
  }

  static TestCluster* nodes_;
  static Cluster* cluster_;
  ActorHandle<ParameterServer> server_;
  std::vector<AnyActorHandle> workers_;
};
TestCluster* WorkerMethodsTest::nodes_;
Cluster* WorkerMethodsTest::cluster_;

TEST_F(WorkerMethodsTest, SamplesAreTheWeightsInTheMean) {
  StartServer("weighted");
  AddTelling(1, 3000);
  AddTelling(5, 1000);
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(WeightOf(0), 2);
  // What is set by hand replaces the samples of all.
  SetWeight(0, 1);
  SetWeight(1, 5);
  ASSERT_TRUE(
      server_.Call<&ParameterServer::SetWorkerWeight>(1, 3.0).Get().ok());
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(WeightOf(0), 4);
}

// Nobody gets a plain mean who asked for a weighted one.
TEST_F(WorkerMethodsTest, SamplesThatNotAllTellAreAnErrorThatSaysWhatToDo) {
  StartServer("weighted");
  AddTelling(1, 3000);
  AddPlain(5);
  const auto result = Sync();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("worker 1 (PlainWorker"), HasSubstr("NumSamples"),
                    HasSubstr("SetWorkerWeight"),
                    HasSubstr("average counts all alike")));
  EXPECT_EQ(WeightOf(0), 1);
  EXPECT_EQ(WeightOf(1), 5);
  ASSERT_TRUE(
      server_.Call<&ParameterServer::SetWorkerWeight>(1, 3.0).Get().ok());
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(WeightOf(0), 4);
}

TEST_F(WorkerMethodsTest, NoSamplesAtAllAreAnErrorAndNeverNaN) {
  StartServer("weighted");
  AddTelling(1, 0);
  AddTelling(5, 0);
  EXPECT_THAT(SyncError(), AllOf(HasSubstr("the weights of all 2 workers are"),
                                 HasSubstr("NumSamples")));
  EXPECT_EQ(WeightOf(0), 1);
}

TEST_F(WorkerMethodsTest, BadSamplesNameTheWorker) {
  StartServer("weighted");
  AddTelling(1, 10);
  AddTelling(5, -1);
  EXPECT_THAT(SyncError(), HasSubstr("worker 1 has the weight -1"));
  workers_.pop_back();
  AddTelling(5, TellingWorker::kUnknown);
  EXPECT_THAT(SyncError(),
              AllOf(HasSubstr("worker 1 ("), HasSubstr("cannot count")));
}

TEST_F(WorkerMethodsTest, OnlyWhatIsNeededIsAskedFor) {
  StartServer("average");
  const auto first = AddTelling(1, 10, {"scale"});
  const auto second = AddTelling(2, 10, {"scale"});
  ASSERT_TRUE(Sync().ok());
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(*first.Call<&TellingWorker::Asked>().Get(), 1) << "for its buffers";
  EXPECT_EQ(*second.Call<&TellingWorker::Asked>().Get(), 0);
}

TEST_F(WorkerMethodsTest, BuffersThatTheWorkerNamesAreAveraged) {
  StartServer("fedavgm", {{"lr", 0.5}});
  AddTelling(0, 1, {"scale"});
  AddTelling(0, 1, {"scale"});
  ASSERT_EQ(*server_.Call<&ParameterServer::StartFromWorkers>(workers_).Get(),
            1);
  SetWeight(0, 2);
  SetWeight(1, 6);
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(WeightOf(1, 0), 2) << "half of the way from 0 to 4";
  EXPECT_EQ(WeightOf(1, 1), 4);
}

TEST_F(WorkerMethodsTest, ABufferThatIsNotThereIsAnError) {
  StartServer("average");
  AddTelling(1, 1, {"shift"});
  EXPECT_THAT(SyncError(),
              AllOf(HasSubstr("worker 0 ("), HasSubstr("'shift'")));
}

TEST_F(WorkerMethodsTest, StartFromWorkersGivesAllTheFirstOnesWeights) {
  StartServer("dp", {{"noise_multiplier", 0}, {"clip_norm", 4}});
  AddPlain(1);
  AddPlain(7);
  EXPECT_THAT(SyncError(), HasSubstr("StartFromWorkers"));
  ASSERT_EQ(*server_.Call<&ParameterServer::StartFromWorkers>(workers_).Get(),
            1);
  EXPECT_EQ(WeightOf(0), 1);
  EXPECT_EQ(WeightOf(1), 1);
  SetWeight(1, 3);  // |(2, 2)| < 4
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(WeightOf(0), 2);

  EXPECT_EQ(server_
                .Call<&ParameterServer::StartFromWorkers>(
                    std::vector<AnyActorHandle>())
                .Get()
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  SetWeight(0, NAN);
  EXPECT_THAT(
      std::string(server_.Call<&ParameterServer::StartFromWorkers>(workers_)
                      .Get()
                      .status()
                      .message()),
      AllOf(HasSubstr("worker 0 ("), HasSubstr("infinite or NaN")));
}

TEST_F(WorkerMethodsTest, TooFewWorkersAreAnErrorBeforeAnythingIsPulled) {
  StartServer("krum");
  for (int i = 0; i < 4; ++i) AddPlain(1);
  EXPECT_THAT(SyncError(), HasSubstr("needs at least 2 * num_malicious + 3"));
}

TEST_F(WorkerMethodsTest, AWorkerWithoutFiniteWeightsMayBeDropped) {
  StartServer("average", {}, {.non_finite = NonFinitePolicy::kDropWorker});
  AddPlain(1);
  AddPlain(NAN);
  AddPlain(3);
  const auto result = Sync();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->num_workers, 3);
  EXPECT_EQ(result->num_refused, 1);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(WeightOf(i), 2);
  const auto stats = server_.Call<&ParameterServer::GetStats>().Get();
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->contributions_accepted, 2);
  EXPECT_EQ(stats->contributions_refused, 1);

  for (size_t i = 0; i < 3; ++i) SetWeight(i, INFINITY);
  EXPECT_THAT(SyncError(), HasSubstr("no worker has finite weights: worker 0"));
}

TEST_F(WorkerMethodsTest, DroppedWorkersDoNotMakeUpTheNumber) {
  StartServer("average", {},
              {.non_finite = NonFinitePolicy::kDropWorker, .min_workers = 3});
  AddPlain(1);
  AddPlain(NAN);
  AddPlain(3);
  AddPlain(NAN);
  EXPECT_THAT(
      SyncError(),
      AllOf(HasSubstr("worker 1 ("), HasSubstr("infinite or NaN"),
            HasSubstr("2 of 4 workers are left, and min_workers is 3")));
  EXPECT_EQ(WeightOf(0), 1);
  SetWeight(3, 5);
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(WeightOf(1), 3);
}

// One worker's weights are the start, however many a synchronisation needs.
TEST_F(WorkerMethodsTest, AStartNeedsNoQuorum) {
  StartServer("fedavgm", {}, {.min_workers = 2});
  AddPlain(1);
  AddPlain(7);
  ASSERT_EQ(*server_.Call<&ParameterServer::StartFromWorkers>(workers_).Get(),
            1);
  EXPECT_EQ(WeightOf(1), 1);
  EXPECT_TRUE(Sync().ok());
}

// The weights of those who are left are theirs.
TEST_F(WorkerMethodsTest, DroppingKeepsEachWorkersWeight) {
  StartServer("weighted", {}, {.non_finite = NonFinitePolicy::kDropWorker});
  AddTelling(NAN, 100);
  AddTelling(1, 3);
  AddTelling(5, 1);
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(WeightOf(0), 2);
}

TEST_F(WorkerMethodsTest, ARobustStrategyMayBeAllowedToSeeThem) {
  const ServerOptions allow = {.non_finite = NonFinitePolicy::kAllow};
  AddPlain(1);
  AddPlain(NAN);
  AddPlain(3);
  StartServer("median");
  EXPECT_THAT(SyncError(), HasSubstr("worker 1 ("));
  ASSERT_TRUE(server_.Kill().ok());
  StartServer("median", {}, allow);
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(WeightOf(1), 3) << "NaN is the largest of the three";
}

TEST_F(WorkerMethodsTest, WhatAStrategyMakesOfThemIsRefusedAndForgotten) {
  StartServer("momentum", {{"momentum", 0.5}},
              {.non_finite = NonFinitePolicy::kAllow});
  AddPlain(1);
  AddPlain(3);
  ASSERT_TRUE(Sync().ok());
  SetWeight(1, NAN);
  EXPECT_THAT(SyncError(),
              AllOf(HasSubstr("worker 1 ("), HasSubstr("infinite or NaN")));
  SetWeight(0, 4);
  SetWeight(1, 4);
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(WeightOf(0), 3) << "half of the way from 2, not from NaN";
}

}  // namespace
}  // namespace miniray::ps

TEST_CLUSTER_MAIN()
