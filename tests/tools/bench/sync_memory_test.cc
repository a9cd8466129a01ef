// What a synchronisation takes of a node's memory beside the workers' own
// models.

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "tests/runtime/test_cluster.h"
#include "tools/bench/node_memory.h"
#include "tools/bench/sync_team.h"

namespace miniray::bench {
namespace {

constexpr int64_t kModel = 50'000'000;

// In models, beyond what there was before the server had weights.
absl::StatusOr<double> ExtraModels(bool keep_weights) {
  TestCluster nodes({.node_cpus = {8}});
  const Cluster cluster = nodes.Connect();
  absl::StatusOr<std::unique_ptr<SyncTeam>> team =
      SyncTeam::Start(cluster, {.bytes = kModel,
                                .workers = std::vector<ActorOptions>(2),
                                .servers = {{.keep_weights = keep_weights}}});
  if (!team.ok()) return team.status();
  const int64_t before = TreeMemory({});
  const absl::StatusOr<int64_t> peak =
      PeakTreeMemory({}, [&]() -> absl::Status {
        for (int i = 0; i < 4; ++i) {
          const absl::StatusOr<double> seconds = (*team)->Sync();
          if (!seconds.ok()) return seconds.status();
        }
        return absl::OkStatus();
      });
  if (!peak.ok()) return peak.status();
  return static_cast<double>(*peak - before) / kModel;
}

TEST(SyncMemoryTest, TheServersWeightsAndTheNextOnes) {
  const absl::StatusOr<double> models = ExtraModels(/*keep_weights=*/true);
  ASSERT_TRUE(models.ok()) << models.status();
  EXPECT_GT(*models, 1.9);
  EXPECT_LT(*models, 2.4);
}

TEST(SyncMemoryTest, TheNextOnesInTheirPlace) {
  const absl::StatusOr<double> models = ExtraModels(/*keep_weights=*/false);
  ASSERT_TRUE(models.ok()) << models.status();
  EXPECT_GT(*models, 0.9);
  EXPECT_LT(*models, 1.4);
}

}  // namespace
}  // namespace miniray::bench

TEST_CLUSTER_MAIN()
