// A synchronisation of weights over links of a limited rate: see kHelp.

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "proto/head.pb.h"
#include "runtime/api/embedded_cluster.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/bench.h"
#include "tools/bench/sync_team.h"
#include "tools/havoc/havoc_cluster.h"
#include "tools/havoc/network.h"

ABSL_FLAG(int, mb, 100, "Megabytes (10^6 bytes) of a worker's weights.");
ABSL_FLAG(int, workers, 4, "Workers, each on a node of its own.");
ABSL_FLAG(double, gbit, 1, "Rate of each node's link, 10^9 bits a second.");
ABSL_FLAG(int, piece_kb, 4096, "Kilobytes (1024 bytes) of a piece.");

namespace miniray::bench {
namespace {

constexpr char kHelp[] =
    R"(Measures a synchronisation through the parameter server over a network, with
the model in pieces (ServerOptions::piece_bytes) and at once.

  pieces [FLAGS]

Each node is a network namespace with a link of its own, whose rate is limited
in both directions at once (tbf); making them needs root. The parameter server
is on one of them, and each worker on another. It is timed until the modules of
all workers hold the mean (which is checked). What the server's link must carry:
the weights of all workers to it, and as many bytes from it. "The link, one
direction" is the time of half of it: what is left where both go on at the same
time.

  --mb=N       megabytes (10^6 bytes) of a worker's weights (default 100)
  --workers=N  (default 4)
  --gbit=X     rate of each link, in 10^9 bits a second (default 1)
  --piece_kb=N kilobytes (1024 bytes) of a piece (default 4096))";

constexpr double kMaxOfWhole = 0.65;
constexpr double kMaxOfLink = 1.3;

double Bytes() { return absl::GetFlag(FLAGS_mb) * 1e6; }

absl::Status CheckFlags() {
  if (absl::GetFlag(FLAGS_mb) >= 1 && absl::GetFlag(FLAGS_workers) >= 1 &&
      absl::GetFlag(FLAGS_workers) <= 100 &&
      absl::GetFlag(FLAGS_gbit) >= 0.001 &&
      absl::GetFlag(FLAGS_piece_kb) >= 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("see --help for what the flags mean");
}

// The nodes' ids, once all are there.
absl::StatusOr<std::vector<std::string>> AwaitNodes(
    const Cluster& cluster, const havoc::Network& network, int count) {
  constexpr absl::Duration kPatience = absl::Seconds(30);
  const absl::Time deadline = absl::Now() + kPatience;
  while (absl::Now() < deadline) {
    MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse state,
                        cluster.GetState());
    std::map<std::string, std::string> by_ip;
    for (const v1::NodeInfo& node : state.nodes()) {
      by_ip[node.address()] = node.node_id();
    }
    std::vector<std::string> ids;
    for (int i = 0; i < count; ++i) {
      const auto found = by_ip.find(network.Ip(havoc::kFirstNodeMachine + i));
      if (found != by_ip.end()) ids.push_back(found->second);
    }
    if (static_cast<int>(ids.size()) == count) return ids;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::DeadlineExceededError("the nodes do not come up");
}

absl::StatusOr<std::unique_ptr<SyncTeam>> StartTeam(
    const Cluster& cluster, const std::vector<std::string>& nodes) {
  // Else processes of one machine would use its memory.
  std::map<std::string, std::string> environment;
  for (const auto& [name, value] : TcpEnvironment()) environment[name] = value;
  SyncTeam::Options options = {
      .bytes = static_cast<int64_t>(Bytes()),
      .servers = {{},
                  {.piece_bytes = int64_t{absl::GetFlag(FLAGS_piece_kb)}
                                  << 10}},
      .server_actor = {
          .resources = {.cpu = 0}, .env = environment, .node_id = nodes[0]}};
  for (size_t i = 1; i < nodes.size(); ++i) {
    options.workers.push_back(
        {.resources = {.cpu = 0}, .env = environment, .node_id = nodes[i]});
  }
  return SyncTeam::Start(cluster, options);
}

absl::Status MeasureWith(const Cluster& cluster, const havoc::Network& network,
                         Table* table) {
  const int workers = absl::GetFlag(FLAGS_workers);
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> nodes,
                      AwaitNodes(cluster, network, workers + 1));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<SyncTeam> team,
                      StartTeam(cluster, nodes));
  MR_ASSIGN_OR_RETURN(
      const std::vector<double> medians,
      MeasureInTurn({{"at once", [&] { return team->Sync(0); }},
                     {"in pieces", [&] { return team->Sync(1); }}},
                    table));
  if (team->num_pieces() < 2) {
    return absl::InternalError("the model did not travel in pieces");
  }
  const double link = workers * Bytes() * 8 / (absl::GetFlag(FLAGS_gbit) * 1e9);
  const std::string what =
      absl::StrFormat("%d MB, %d workers, %g Gbit/s", absl::GetFlag(FLAGS_mb),
                      workers, absl::GetFlag(FLAGS_gbit));
  table->Add({.what = what + ", in pieces",
              .unit = "s",
              .ours = medians[1],
              .peer_name = "at once",
              .peer = medians[0],
              .at_most = kMaxOfWhole});
  table->Add({.what = what + ", in pieces",
              .unit = "s",
              .ours = medians[1],
              .peer_name = "the link, one direction",
              .peer = link,
              .at_most = kMaxOfLink});
  table->Add({.what = what + ", at once",
              .unit = "s",
              .ours = medians[0],
              .peer_name = "the link, both in turn",
              .peer = 2 * link});
  return absl::OkStatus();
}

absl::Status Measure(Table* table) {
  MR_RETURN_IF_ERROR(CheckFlags());
  const int nodes = absl::GetFlag(FLAGS_workers) + 1;
  MR_ASSIGN_OR_RETURN(const std::string miniray,
                      internal::FindMinirayProgram());
  MR_ASSIGN_OR_RETURN(const std::string folder, RuntimeDirectory());
  MR_RETURN_IF_ERROR(MakeDirectories(folder, 0700));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<havoc::Network> network,
                      havoc::Network::Create(havoc::Network::Kind::kNamespaces,
                                             havoc::kFirstNodeMachine + nodes));
  MR_RETURN_IF_ERROR(network->LimitRate(
      static_cast<int64_t>(absl::GetFlag(FLAGS_gbit) * 1e9)));
  if (!network->Enter(havoc::kDriverMachine)) {
    return ErrnoStatus(errno, "enter the driver's namespace");
  }
  absl::Status measured;
  {
    const std::string token = NewId("token");
    havoc::HavocCluster machines({.miniray = miniray,
                                  .folder = folder,
                                  .mark = NewId("bench"),
                                  .token = token,
                                  .nodes = nodes},
                                 network.get());
    MR_RETURN_IF_ERROR(machines.StartHead());
    for (int i = 0; i < nodes; ++i) MR_RETURN_IF_ERROR(machines.StartNode(i));
    MR_ASSIGN_OR_RETURN(
        Cluster driver,
        Cluster::Connect({.address = machines.address(), .token = token}));
    measured = MeasureWith(driver, *network, table);
    driver.Shutdown();
    measured.Update(machines.Stop());
  }
  measured.Update(network->Remove());
  return measured;
}

}  // namespace
}  // namespace miniray::bench

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  namespace bench = miniray::bench;
  return bench::Main(
      argc, argv,
      {.name = "pieces", .help = bench::kHelp, .measure = bench::Measure});
}
