// Training over a network that loses requests and replies and breaks
// connections, in all processes: it ends as one that nothing disturbs, without
// a failure that anybody would have to bear.

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/rpc/fault_injector.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/quadratic_worker.h"

namespace miniray::train {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

constexpr int kEpochs = 20;

// As seen by the user: what each epoch came to, and the model.
struct Outcome {
  std::vector<double> x;
  float weight = 0;
};

// Momentum on the server and an epoch that is a step: whatever is done twice,
// or not at all, shows.
absl::StatusOr<Outcome> Train() {
  TestCluster nodes;
  const Cluster cluster = nodes.Connect();
  TrainerOptions options = {.num_workers = 2,
                            .cluster = cluster,
                            .sync_strategy = "momentum",
                            .strategy_options = {{"momentum", 0.5}}};
  QuadraticTrainer trainer(options, {});
  MR_ASSIGN_OR_RETURN(const Result result, trainer.Train({.epochs = kEpochs}));
  EXPECT_THAT(result.failures, IsEmpty());
  EXPECT_EQ(trainer.GetSyncStats()->num_syncs, kEpochs);
  Outcome outcome;
  for (const EpochResult& epoch : result.history) {
    EXPECT_EQ(epoch.epoch, static_cast<int>(outcome.x.size()));
    outcome.x.push_back(epoch.metrics.at("x"));
  }
  for (const auto& worker : trainer.workers()) {
    EXPECT_THAT(worker.Call<&QuadraticWorker::EpochsTrained>().Get(),
                IsOkAndHolds(kEpochs));
  }
  MR_ASSIGN_OR_RETURN(const NamedTensors weights, trainer.PullWeights());
  outcome.weight = weights.at(0).second.item<float>();
  return outcome;
}

// Faults of this process, and of those that it starts.
void Ask(const std::string& faults) {
  EXPECT_THAT(UseFaults(faults), IsOk());
  if (faults.empty()) {
    unsetenv(kFaultsVariable);
  } else {
    setenv(kFaultsVariable, faults.c_str(), 1);
  }
}

// How many of the first `messages` of the driver to its actors break their
// connection.
int Resets(const std::string& faults, int messages) {
  FaultInjector injector(ParseFaultSpec(faults).value());
  int resets = 0;
  for (int i = 0; i < messages; ++i) {
    resets += injector.Decide("/miniray.v1.ActorService/Channel",
                              FaultInjector::Kind::kReset);
  }
  return resets;
}

class TrainerFaultsTest : public ::testing::Test {
 protected:
  ~TrainerFaultsTest() override { Ask(""); }
};

TEST_F(TrainerFaultsTest, ABadNetworkChangesNothing) {
  Ask("");
  const auto undisturbed = Train();
  ASSERT_THAT(undisturbed, IsOk());
  ASSERT_EQ(undisturbed->x.size(), kEpochs);
  for (int seed = 1; seed <= 3; ++seed) {
    const std::string faults = absl::StrCat(
        "Head/CreateActor:drop_request=0.3,drop_reply=0.4;"
        "Head/GetActor:drop_request=0.2,drop_reply=0.2;"
        "Head/CreatePlacementGroup:drop_reply=0.5;"
        "Head/RenewLease:drop_request=0.2,drop_reply=0.2;"
        "ActorService/Channel:reset=0.06,delay=0.1@5ms;seed=",
        seed);
    SCOPED_TRACE(faults);
    // Two calls of TrainEpoch and one of SyncOnce an epoch, at least.
    ASSERT_GT(Resets(faults, 3 * kEpochs), 0);
    Ask(faults);
    const auto disturbed = Train();
    ASSERT_THAT(disturbed, IsOk());
    EXPECT_THAT(disturbed->x, ElementsAreArray(undisturbed->x));
    EXPECT_EQ(disturbed->weight, undisturbed->weight);
  }
}

}  // namespace
}  // namespace miniray::train

TEST_CLUSTER_MAIN()
