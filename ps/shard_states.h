// The states of all shards of a parameter server as one string, for a
// checkpoint; see ParameterServer::ExportState.

#ifndef MINIRAY_PS_SHARD_STATES_H_
#define MINIRAY_PS_SHARD_STATES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace miniray::ps {

struct ShardStates {
  std::string id;                   // Of the weights; empty: there are none.
  std::vector<std::string> shards;  // By shard: its own ExportState.
};

// Eight bytes that no other state begins with; then, each behind its size (64
// bits, little-endian): the id, and the shards' states.
std::string PackShardStates(const ShardStates& states);

// Whether `bytes` is the state of a server with several shards.
bool AreShardStates(absl::string_view bytes);

// Errors: INVALID_ARGUMENT, the bytes are none, or are cut.
absl::StatusOr<ShardStates> UnpackShardStates(absl::string_view bytes);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_SHARD_STATES_H_
