#include "runtime/dashboard/api.h"

#include "absl/hash/hash.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace miniray {
namespace {

// The same for the same tables: a map's order may differ from copy to copy.
uint64_t FingerprintOf(const v1::GetClusterStateResponse& state) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream to(&bytes);
    google::protobuf::io::CodedOutputStream coded(&to);
    coded.SetSerializationDeterministic(true);
    state.SerializeToCodedStream(&coded);
  }
  return absl::Hash<std::string>()(bytes);
}

ChangeFeed::Sources SourcesOf(const DashboardServer::Options& options) {
  ChangeFeed::Sources sources;
  sources.state_fingerprint = options.state_fingerprint;
  if (!sources.state_fingerprint) {
    sources.state_fingerprint = [state = options.state] {
      return FingerprintOf(state());
    };
  }
  sources.await_runs = options.await_runs;
  return sources;
}

}  // namespace

Api::Api(const DashboardServer::Options* options)
    : options_(*options), feed_(SourcesOf(*options)) {}

void Api::AddTo(Routes* routes) {
  AddClusterTo(routes);
  AddMetricsTo(routes);
  AddRunsTo(routes);
  AddStreamsTo(routes);
  AddTimelineTo(routes);
}

v1::GetUsageResponse Api::Usage(
    const std::vector<std::string>& actor_ids) const {
  if (!options_.usage) return {};
  return options_.usage(actor_ids);
}

v1::GetClusterStateResponse Api::Select(
    const std::set<v1::Table>& tables,
    const std::function<bool(const v1::ActorInfo&)>& keep_actor) const {
  if (options_.select_state) return options_.select_state(tables, keep_actor);
  v1::GetClusterStateResponse all = options_.state();
  v1::GetClusterStateResponse selected;
  if (tables.contains(v1::TABLE_NODES)) {
    selected.mutable_nodes()->Swap(all.mutable_nodes());
  }
  if (tables.contains(v1::TABLE_JOBS)) {
    selected.mutable_jobs()->Swap(all.mutable_jobs());
  }
  if (!tables.contains(v1::TABLE_ACTORS)) return selected;
  for (v1::ActorInfo& actor : *all.mutable_actors()) {
    if (!keep_actor || keep_actor(actor)) {
      *selected.add_actors() = std::move(actor);
    }
  }
  return selected;
}

}  // namespace miniray
