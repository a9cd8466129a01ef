// Parameter servers and workers whose weights travel in parts, with real
// processes: what tests of several shards and of pieces have in common.

#ifndef MINIRAY_TESTS_PS_EXCHANGE_TEST_H_
#define MINIRAY_TESTS_PS_EXCHANGE_TEST_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ps/parameter_server.h"
#include "tests/ps/exchange_worker.h"
#include "tests/ps/survival.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::ps {

// 33,633 + 4,097 + 7 floats and a counter: about three parts of 12,579 floats,
// so the first tensor is cut twice.
inline NamedTensors Model(double phase) {
  const auto wave = [phase](int64_t size) {
    return at::arange(size).mul(0.37).add(phase).sin().to(at::kFloat);
  };
  return {{"fc.weight", wave(101 * 333).view({101, 333})},
          {"bn.running_var", wave(4097).abs()},
          {"bias", wave(7)},
          {"count", Ints({static_cast<int64_t>(phase)})}};
}
inline constexpr int64_t kModelBytes = 4 * (33'633 + 4'097 + 7) + 8;

inline void ExpectSame(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(SameBits(a[i].second, b[i].second)) << a[i].first;
  }
}

// WorkerClass: as Worker of exchange_worker.h.
template <class WorkerClass>
class ExchangeTest : public ::testing::Test {
 protected:
  void StartWorkers(int count, int max_restarts = 0) {
    for (int i = 0; i < count; ++i) {
      auto worker = cluster_.CreateActor<WorkerClass>(
          {.resources = {.cpu = 0}, .max_restarts = max_restarts}, Model(i));
      ASSERT_TRUE(worker.ok()) << worker.status();
      workers_.push_back(*worker);
      handles_.push_back(*worker);
    }
  }

  void EndWorkers() {
    for (const auto& worker : workers_) EXPECT_TRUE(worker.Kill().ok());
    workers_.clear();
    handles_.clear();
  }

  void ResetWorkers() {
    for (size_t i = 0; i < workers_.size(); ++i) {
      const absl::Status set = workers_[i]
                                   .template Call<&WorkerClass::SetWeights>(
                                       Model(static_cast<double>(i)))
                                   .Get();
      ASSERT_TRUE(set.ok()) << set;
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
      NamedTensors update = Model(static_cast<double>(i) + 10.0 * step);
      for (auto& [name, tensor] : update) {
        if (tensor.scalar_type() == at::kFloat) tensor.mul_(0.01);
      }
      AddTo(i, update);
    }
  }

  void AddTo(size_t worker, const NamedTensors& update) {
    const absl::Status added =
        workers_[worker].template Call<&WorkerClass::Add>(update).Get();
    ASSERT_TRUE(added.ok()) << added;
  }

  absl::StatusOr<SyncResult> Sync(const ActorHandle<ParameterServer>& server) {
    return server.Call<&ParameterServer::SyncFromWorkers>(handles_).Get();
  }

  int64_t VersionOf(const ActorHandle<ParameterServer>& server) {
    const auto stats = server.Call<&ParameterServer::GetStats>().Get();
    EXPECT_TRUE(stats.ok()) << stats.status();
    return stats.ok() ? stats->version : -1;
  }

  NamedTensors WeightsOf(size_t worker) {
    auto weights =
        workers_[worker].template Call<&WorkerClass::GetWeights>().Get();
    EXPECT_TRUE(weights.ok()) << weights.status();
    return *std::move(weights);
  }

  void ExpectAllTheSame() {
    const NamedTensors first = WeightsOf(0);
    for (size_t i = 1; i < workers_.size(); ++i) {
      ExpectSame(WeightsOf(i), first);
    }
  }

  // Trains, and synchronises for the `sync`-th time, from 0; if the killer says
  // that it is time, one of `victims` dies within `soon`: before it works on
  // that, in the middle of it, or after.
  absl::StatusOr<SyncResult> SyncUnderFire(
      const ActorHandle<ParameterServer>& server, int sync, Killer* killer,
      const std::vector<AnyActorHandle>& victims, absl::Duration soon) {
    Train(sync);
    auto call = server.With({.max_retries = -1})
                    .template Call<&ParameterServer::SyncOnce>(
                        handles_, absl::StrCat(sync));
    if (killer->IsTime()) {
      killer->Kill(victims[killer->Random() % victims.size()], soon);
    }
    absl::StatusOr<SyncResult> result = call.Get();
    EXPECT_TRUE(result.ok()) << result.status();
    if (result.ok()) {
      EXPECT_EQ(result->version, sync + 1);
    }
    return result;
  }

  // Checks that each of `syncs` synchronisations counts once and that all
  // workers have the same; ends all, and returns the weights.
  NamedTensors EndRun(const ActorHandle<ParameterServer>& server, int syncs) {
    const auto stats = server.With({.max_retries = -1})
                           .template Call<&ParameterServer::GetStats>()
                           .Get();
    EXPECT_TRUE(stats.ok()) << stats.status();
    if (stats.ok()) {
      EXPECT_EQ(stats->version, syncs);
      EXPECT_EQ(stats->num_syncs, syncs);
    }
    ExpectAllTheSame();
    NamedTensors weights = WeightsOf(0);
    EXPECT_TRUE(StopParameterServer(server).ok());
    EndWorkers();
    return weights;
  }

  static std::string Folder(absl::string_view name) {
    const std::string folder = absl::StrCat(testing::TempDir(), "/", name);
    std::filesystem::remove_all(folder);
    return folder;
  }

  TestCluster nodes_{{.node_cpus = {64, 64},
                      .head = {.max_restart_delay = absl::Milliseconds(100)}}};
  Cluster cluster_ = nodes_.Connect();
  std::vector<ActorHandle<WorkerClass>> workers_;
  std::vector<AnyActorHandle> handles_;
};

}  // namespace miniray::ps

#endif  // MINIRAY_TESTS_PS_EXCHANGE_TEST_H_
