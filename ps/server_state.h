// What a parameter server keeps in a folder, so that its next process goes on
// where this one was killed.

#ifndef MINIRAY_PS_SERVER_STATE_H_
#define MINIRAY_PS_SERVER_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ps/option_map.h"
#include "ps/staleness.h"
#include "ps/weight_message.h"
#include "runtime/tensor/tensor_codec.h"
#include "runtime/wire/codec.h"

namespace miniray::ps {

// Which strategy a server has.
struct StrategyId {
  std::string name;
  OptionMap options;  // All of them (StrategyRegistry::Complete).
  std::string text;   // For people, as in SyncStats: without what is secret.
};
MINIRAY_STRUCT(StrategyId, name, options, text);

// "" if they are the same: the same name, and the same values of all options.
// Else "a server with the strategy ..., and this one has ...", with the option
// that differs.
std::string OtherStrategyText(const StrategyId& other, const StrategyId& own);

struct ServerState {
  StrategyId strategy;
  int64_t version = 0;
  int64_t num_syncs = 0;
  std::string last_sync;  // Id of the synchronisation that made `weights`.
  ReadOnly<NamedTensors> weights;  // None yet: empty.
  std::vector<std::string> buffer_names;
  bool knows_buffers = false;
  ReadOnly<NamedTensors> strategy_tensors;
  OptionMap strategy_scalars;
  std::map<int, double> worker_weights;
  std::vector<WorkerClock> clocks;  // Of those that push gradients.
  // What the workers hold, where they hold something else (weight_view.h), its
  // id, and whose contributions it has.
  ReadOnly<NamedTensors> view;
  std::string view_id;
  std::vector<int64_t> contributors;
  std::vector<TensorPart> places;  // Of a shard's tensors in the whole model.
};
MINIRAY_STRUCT(ServerState, strategy, version, num_syncs, last_sync, weights,
               buffer_names, knows_buffers, strategy_tensors, strategy_scalars,
               worker_weights, clocks, view, view_id, contributors, places);

// Writes the state into the folder, which is made if there is none, and forces
// it to the disk. Whoever is killed meanwhile, or if the power fails, the
// folder has the old state or the new one; the new one once this has returned
// OK.
//
// Errors: RESOURCE_EXHAUSTED, the disk is full; PERMISSION_DENIED and others of
// the system, with the path.
absl::Status SaveServerState(const std::string& folder,
                             const ServerState& state);

// Returns the folder's state; none if it has none. Errors: DATA_LOSS, the file
// is damaged, with its path. FAILED_PRECONDITION, it is of another release. Of
// the system.
absl::StatusOr<std::optional<ServerState>> LoadServerState(
    const std::string& folder);

// Makes what the one folder has the other's state, on the disk too. Errors: of
// the system.
absl::Status MoveServerState(const std::string& from, const std::string& to);

// Removes the folder's state, if it has one. Errors: of the system.
absl::Status RemoveServerState(const std::string& folder);

// The file's name in its folder.
inline constexpr char kServerStateFile[] = "server.state";

// The same as LoadServerState for a server with this strategy that has been
// restarted so often. Errors: FAILED_PRECONDITION, the
// state is another server's, or it must be there and is not.
absl::StatusOr<std::optional<ServerState>> LoadOwnServerState(
    const std::string& folder, const StrategyId& strategy,
    int64_t num_restarts);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_SERVER_STATE_H_
