// Measures starts: of a cluster, and of actors that use LibTorch.
//
//   bazel-bin/tools/bench/start [--rounds=N] [--json] [--check]

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/head.pb.h"
#include "runtime/api/embedded_cluster.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "tools/bench/bench.h"
#include "tools/bench/child.h"
#include "tools/bench/peers/ray.h"
#include "tools/bench/peers/torch_start.h"

namespace miniray::bench {

class TorchActor {
 public:
  double Work() { return TorchOperation(); }
};
MINIRAY_ACTOR(TorchActor, Constructor<>, &TorchActor::Work);

namespace {

constexpr char kHelp[] =
    R"(Measures how long starts take.

  start [FLAGS]

A cluster: from running `miniray start --head --num_cpus=4` (or, embedded, the
head and the worker daemon themselves) until a client has asked the head and
seen the daemon. A warm actor: from creating it until its first answer, which
takes a tensor operation, on a node where the program has had an actor before.
The peers: a program with LibTorch that is run, and a fork of a process that has
LibTorch loaded, each until it has done the same operation.)";

constexpr int kManyActors = 8;
constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr double kMaxClusterMs = 300;
constexpr double kMaxActorMs = 30;
constexpr double kMaxActorsMs = 150;

absl::Status AwaitNode(const Cluster& cluster) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (absl::Now() < deadline) {
    MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse state,
                        cluster.GetState());
    for (const auto& node : state.nodes()) {
      if (node.state() == v1::NODE_STATE_ALIVE) return absl::OkStatus();
    }
    absl::SleepFor(absl::Milliseconds(1));
  }
  return absl::DeadlineExceededError("no worker daemon joined the head");
}

// --- Clusters.

// Waits for the end of a `miniray` command; returns the head's address if it
// says one.
absl::StatusOr<std::string> RunMiniray(const std::string& folder,
                                       std::vector<std::string> args) {
  MR_ASSIGN_OR_RETURN(const std::string program,
                      internal::FindMinirayProgram());
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Child> command,
                      Child::StartProgram("miniray", program, std::move(args),
                                          {{"MINIRAY_RUNTIME_DIR", folder}}));
  std::string address;
  constexpr char kBefore[] = "The head listens at ";
  while (true) {
    const absl::StatusOr<std::string> line = command->Receive(kPatience);
    if (absl::IsUnavailable(line.status())) break;  // Its end.
    if (!line.ok()) return line.status();
    if (absl::StartsWith(*line, kBefore)) {
      address = line->substr(sizeof(kBefore) - 1);
      address.resize(std::min(address.size(), address.find(' ')));
    }
  }
  return address;
}

absl::StatusOr<double> StartByCommand() {
  MR_ASSIGN_OR_RETURN(const std::string runtime, RuntimeDirectory());
  const std::string folder = absl::StrCat(runtime, "/", NewId("start"));
  MR_RETURN_IF_ERROR(MakeDirectories(folder, 0700));
  const absl::Cleanup stop = [&] {
    (void)RunMiniray(folder, {"stop"});
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  };
  const absl::Time start = absl::Now();
  MR_ASSIGN_OR_RETURN(
      const std::string address,
      RunMiniray(folder, {"start", "--head", "--port=0", "--dashboard_port=-1",
                          "--num_cpus=4"}));
  if (address.empty()) return absl::InternalError("miniray start failed");
  MR_ASSIGN_OR_RETURN(const Cluster cluster,
                      Cluster::Connect({.address = address}));
  MR_RETURN_IF_ERROR(AwaitNode(cluster));
  return SecondsSince(start);
}

absl::StatusOr<double> StartEmbedded() {
  const absl::Time start = absl::Now();
  MR_ASSIGN_OR_RETURN(const Cluster cluster, Cluster::Connect());
  MR_RETURN_IF_ERROR(AwaitNode(cluster));
  return SecondsSince(start);
}

// --- Actors.

absl::StatusOr<double> StartActors(const Cluster& cluster, int count) {
  const absl::Time start = absl::Now();
  std::vector<ActorHandle<TorchActor>> actors;
  std::vector<ObjectRef<double>> answers;
  for (int i = 0; i < count; ++i) {
    MR_ASSIGN_OR_RETURN(ActorHandle<TorchActor> actor,
                        cluster.CreateActor<TorchActor>({}));
    answers.push_back(actor.Call<&TorchActor::Work>());
    actors.push_back(std::move(actor));
  }
  MR_RETURN_IF_ERROR(GetAll(answers).status());
  const double seconds = SecondsSince(start);
  for (const auto& actor : actors) MR_RETURN_IF_ERROR(Kill(actor));
  return seconds;
}

absl::Status Measure(Table* table) {
  MR_ASSIGN_OR_RETURN(const Cluster cluster,
                      Cluster::Connect({.embedded_num_cpus = 32}));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<TorchTemplate> fork,
                      TorchTemplate::Start());
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Child> ray, StartRay());
  std::vector<Measurement> measurements = {
      {"miniray start", StartByCommand},
      {"embedded cluster", StartEmbedded},
      {"actor", [&] { return StartActors(cluster, 1); }},
      {"actors", [&] { return StartActors(cluster, kManyActors); }},
      {"program with LibTorch", StartTorchProgram},
      {"fork with LibTorch", [&] { return fork->Fork(); }},
  };
  if (ray != nullptr) {
    measurements.push_back(
        {"Ray", [&] { return ray->AskNumber("first_call"); }});
  }
  MR_ASSIGN_OR_RETURN(std::vector<double> medians,
                      MeasureInTurn(measurements, table));
  for (double& median : medians) median *= 1e3;
  const std::string one = "create and first call of a warm actor with LibTorch";
  table->Add({.what = "head and daemon up and answering, miniray start",
              .unit = "ms",
              .ours = medians[0],
              .at_most = kMaxClusterMs});
  table->Add({.what = "head and daemon up and answering, embedded",
              .unit = "ms",
              .ours = medians[1],
              .at_most = kMaxClusterMs});
  table->Add(
      {.what = one, .unit = "ms", .ours = medians[2], .at_most = kMaxActorMs});
  table->Add({.what = absl::StrCat(kManyActors, " of them"),
              .unit = "ms",
              .ours = medians[3],
              .at_most = kMaxActorsMs});
  table->Add({.what = one,
              .unit = "ms",
              .ours = medians[2],
              .peer_name = "program with LibTorch, run",
              .peer = medians[4]});
  table->Add({.what = one,
              .unit = "ms",
              .ours = medians[2],
              .peer_name = "process with LibTorch, forked",
              .peer = medians[5]});
  table->Add({.what = one,
              .unit = "ms",
              .ours = medians[2],
              .peer_name = ray == nullptr ? kNoRay : "Ray",
              .peer = ray == nullptr ? std::nullopt
                                     : std::optional<double>(medians[6])});
  return absl::OkStatus();
}

}  // namespace
}  // namespace miniray::bench

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  namespace bench = miniray::bench;
  return bench::Main(
      argc, argv,
      {.name = "start",
       .help = bench::kHelp,
       .measure = bench::Measure,
       .roles = {{bench::kTorchProgramRole, bench::ServeTorchProgram},
                 {bench::kTorchTemplateRole, bench::ServeTorchTemplate}}});
}
