// The example of a strategy in a plug-in, with real workers, one of which sends
// garbage.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/full.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/parameter_server.h"
#include "ps/strategy_registry.h"
#include "runtime/actor/plugins.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::ml {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Two floats, and a counter.
class Worker {
 public:
  Worker(float value, int64_t batches)
      : weights_({{"w", at::full({2}, value)},
                  {"batches", at::full({}, batches, at::kLong)}}) {}
  NamedTensors GetWeights() { return weights_; }
  void SetWeights(NamedTensors weights) { weights_ = std::move(weights); }

 private:
  NamedTensors weights_;
};
MINIRAY_ACTOR(Worker, Constructor<float, int64_t>, &Worker::GetWeights,
              &Worker::SetWeights);

class MedianPluginTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // As --plugin does it.
    const absl::Status loaded =
        miniray::internal::LoadProgramPlugins({absl::StrCat(
            std::getenv("TEST_SRCDIR"), "/", std::getenv("TEST_WORKSPACE"),
            "/ml/examples/libmedian_plugin.so")});
    ASSERT_TRUE(loaded.ok()) << loaded;
  }

  // Synchronises workers that have these values, and returns what each has
  // then, the two floats of all of them one behind the other.
  static std::vector<float> Synchronise(const Cluster& cluster,
                                        const std::string& strategy,
                                        const std::vector<float>& values) {
    std::vector<ActorHandle<Worker>> workers;
    for (size_t i = 0; i < values.size(); ++i) {
      auto worker = cluster.CreateActor<Worker>({.resources = {.cpu = 0}},
                                                values[i], int64_t{3});
      EXPECT_TRUE(worker.ok()) << worker.status();
      if (!worker.ok()) return {};
      workers.push_back(*worker);
    }
    const auto server = ps::CreateParameterServer(cluster, strategy);
    EXPECT_TRUE(server.ok()) << server.status();
    if (!server.ok()) return {};
    const std::vector<AnyActorHandle> handles(workers.begin(), workers.end());
    const auto result =
        server->Call<&ps::ParameterServer::SyncFromWorkers>(handles).Get();
    EXPECT_TRUE(result.ok()) << result.status();
    std::vector<float> synchronised;
    for (const ActorHandle<Worker>& worker : workers) {
      const auto weights = worker.Call<&Worker::GetWeights>().Get();
      EXPECT_TRUE(weights.ok()) << weights.status();
      if (!weights.ok()) return {};
      const float* const floats = (*weights)[0].second.data_ptr<float>();
      synchronised.insert(synchronised.end(), floats, floats + 2);
      EXPECT_EQ((*weights)[1].second.item<int64_t>(), 3);
    }
    return synchronised;
  }
};

TEST_F(MedianPluginTest, AWorkerThatSendsGarbageMovesNothing) {
  TestCluster nodes;
  const Cluster cluster = nodes.Connect();
  const std::vector<float> garbage = {1, -1e30f, 2, 4};
  const std::vector<float> of_four =
      Synchronise(cluster, "example_median", garbage);
  EXPECT_THAT(of_four, SizeIs(8));
  EXPECT_THAT(of_four, Each(1.5f));  // The mean of the two in the middle.
  // The mean is what the garbage makes it.
  EXPECT_THAT(Synchronise(cluster, "average", garbage),
              Each(::testing::Lt(-1e29f)));

  const std::vector<float> of_three =
      Synchronise(cluster, "example_median", {7, 1e30f, -5});
  EXPECT_THAT(of_three, SizeIs(6));
  EXPECT_THAT(of_three, Each(7.f));
}

TEST_F(MedianPluginTest, EveryClusterIsSentIt) {
  for (int i = 0; i < 2; ++i) {
    TestCluster nodes;
    EXPECT_THAT(Synchronise(nodes.Connect(), "example_median", {7, 1, 5}),
                Each(5.f));
  }
}

TEST_F(MedianPluginTest, ItTakesNoOptions) {
  const auto strategy =
      ps::StrategyRegistry::Get().Create("example_median", {{"beta", 0.1}});
  EXPECT_EQ(strategy.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(strategy.status().message()), HasSubstr("beta"));
}

}  // namespace
}  // namespace miniray::ml

TEST_CLUSTER_MAIN()
