// What makes ParameterServer a shard, or several shards a server.

#ifndef MINIRAY_PS_SHARD_METHODS_H_
#define MINIRAY_PS_SHARD_METHODS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ps/server_options.h"
#include "ps/strategy_registry.h"
#include "runtime/api/miniray.h"

namespace miniray::ps {

class ParameterServer;

// Where a shard whose state is in `state_dir` keeps what it has prepared.
std::string PreparedFolder(const std::string& state_dir);

// CreateParameterServer for num_shards above 1; the options are checked.
// shards: may be null.
absl::StatusOr<ActorHandle<ParameterServer>> CreateShardedServer(
    const Cluster& cluster, const std::string& strategy,
    const StrategyOptions& options, const ServerOptions& server_options,
    const ActorOptions& actor_options, std::vector<AnyActorHandle>* shards);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_SHARD_METHODS_H_
