// A synchronisation strategy that only a plug-in has.

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/parameter_server.h"
#include "ps/strategy_registry.h"
#include "runtime/actor/plugins.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "torch/version.h"

namespace miniray::ps {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Worker {
 public:
  explicit Worker(NamedTensors weights) : weights_(std::move(weights)) {}
  NamedTensors GetWeights() { return weights_; }
  void SetWeights(NamedTensors weights) { weights_ = std::move(weights); }

 private:
  NamedTensors weights_;
};
MINIRAY_ACTOR(Worker, Constructor<NamedTensors>, &Worker::GetWeights,
              &Worker::SetWeights);

std::string PluginFile() {
  return absl::StrCat(getenv("TEST_SRCDIR"), "/", getenv("TEST_WORKSPACE"),
                      "/tests/ps/liblower_median.so");
}

TEST(PluginStrategyTest, OneForAnotherLibTorchIsRefused) {
  std::string bytes = *ReadFile(PluginFile());
  const std::string version = absl::StrCat(TORCH_VERSION, ">");
  const size_t at = bytes.find("<miniray-plugin-libtorch:" + version);
  ASSERT_NE(at, std::string::npos);
  bytes[bytes.find(version, at)] = '9';
  const TempFolder folder;
  const std::string path = folder.path() + "/libother.so";
  ASSERT_TRUE(WriteFileAtomically(path, bytes).ok());

  const absl::Status status =
      miniray::internal::LoadPlugin(path, "libother.so");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.ToString(),
              AllOf(HasSubstr("plug-in libother.so"),
                    HasSubstr(absl::StrCat("built for LibTorch 9",
                                           version.substr(1, 3))),
                    HasSubstr(absl::StrCat("this program has LibTorch ",
                                           TORCH_VERSION, ";"))));
}

TEST(PluginStrategyTest, AServerAggregatesWithIt) {
  TestCluster nodes;
  Cluster cluster = nodes.Connect();
  EXPECT_THAT(
      std::string(
          CreateParameterServer(cluster, "lower_median").status().message()),
      HasSubstr("no synchronisation strategy 'lower_median'"));

  // As --plugin does it.
  const absl::Status loaded =
      miniray::internal::LoadProgramPlugins({PluginFile()});
  ASSERT_TRUE(loaded.ok()) << loaded;
  std::vector<AnyActorHandle> workers;
  std::vector<ActorHandle<Worker>> handles;
  for (const float value : {1.f, 1000.f, 2.f}) {
    auto worker = cluster.CreateActor<Worker>(
        {.resources = {.cpu = 0}},
        NamedTensors{{"w", Floats({value, -value})}, {"n", Ints({7})}});
    ASSERT_TRUE(worker.ok()) << worker.status();
    handles.push_back(*worker);
    workers.push_back(*worker);
  }
  const auto server = CreateParameterServer(cluster, "lower_median");
  ASSERT_TRUE(server.ok()) << server.status();
  const auto result =
      server->Call<&ParameterServer::SyncFromWorkers>(workers).Get();
  ASSERT_TRUE(result.ok()) << result.status();
  for (const auto& worker : handles) {
    const auto weights = worker.Call<&Worker::GetWeights>().Get();
    ASSERT_TRUE(weights.ok()) << weights.status();
    EXPECT_THAT(Values((*weights)[0].second), ElementsAre(2, -2));
    EXPECT_THAT(Values((*weights)[1].second), ElementsAre(7));
  }
  EXPECT_EQ(server->Call<&ParameterServer::GetStats>().Get()->strategy,
            "lower_median");
}

}  // namespace
}  // namespace miniray::ps

TEST_CLUSTER_MAIN()
