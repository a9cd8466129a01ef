#include "tools/cli/other_daemons.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "proto/head.grpc.pb.h"
#include "runtime/base/net.h"
#include "runtime/rpc/channel.h"
#include "tools/cli/start_options.h"

namespace miniray::cli {
namespace {

// A warning is not worth more; internal.
constexpr absl::Duration kTimeout = absl::Seconds(2);

}  // namespace

std::string WarnOfOtherDaemons(const std::string& address,
                               const std::string& token,
                               const std::string& node_id) {
  v1::GetClusterStateRequest request;
  request.add_tables(v1::TABLE_NODES);
  v1::Filter* const filter = request.add_filters();
  filter->set_field("hostname");
  filter->set_value(Hostname());
  v1::GetClusterStateResponse state;
  grpc::ClientContext context;
  PrepareContext(&context, token, kTimeout);
  const auto stub = v1::Head::NewStub(MakeChannel(address));
  if (!stub->GetClusterState(&context, request, &state).ok()) return "";

  double cpus = 0;
  std::vector<std::string> others;
  for (const v1::NodeInfo& node : state.nodes()) {
    // Machines may have the same name.
    if (node.state() != v1::NODE_STATE_ALIVE || !IsOwnAddress(node.address())) {
      continue;
    }
    const auto offer = node.total().quantity().find("CPU");
    const double offered =
        offer == node.total().quantity().end() ? 0 : offer->second;
    cpus += offered;
    if (node.node_id() != node_id && offered > 0) {
      others.push_back(
          absl::StrCat(node.node_id(), " with ", offered, " CPUs"));
    }
  }
  if (others.empty() || cpus <= UsableCpus()) return "";
  return absl::StrCat(
      "this machine is in the cluster at ", address, " already, as ",
      absl::StrJoin(others, ", "), "; together its daemons now offer ", cpus,
      " CPUs, but there are ", UsableCpus(),
      ": actors will share them unless each daemon gets its part with "
      "--num_cpus");
}

}  // namespace miniray::cli
