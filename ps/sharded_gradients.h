// ShardedGradients: what stands behind the ParameterServer that a user talks to
// where the strategy takes gradients and the model is cut over several shards.
// Workers push to the shards themselves (gradient_client.h); this gives all of
// them weights to start from, and puts together what they have.
//
// Each shard takes steps of its own, with the same gradients: nothing is agreed
// on between them. So their versions may differ by what is under way.
//
// Not thread-safe: methods run one at a time, as those of the actor do.

#ifndef MINIRAY_PS_SHARDED_GRADIENTS_H_
#define MINIRAY_PS_SHARDED_GRADIENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/sync_result.h"
#include "ps/weight_message.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

class ShardedGradients {
 public:
  // shards: actors of class ParameterServer, by their index.
  explicit ShardedGradients(std::vector<AnyActorHandle> shards);

  // A worker offers its weights: all shards begin with them if one has none.
  // So all begin with those of the same worker, and also if this is broken off
  // and done again with another's.
  //
  // Errors: as of Start. DATA_LOSS, one has none and another has taken steps.
  absl::Status StartIfEmpty(const NamedTensors& weights,
                            const std::vector<std::string>& buffers);

  // Sets the weights of all shards; returns their version. After an error some
  // may have them: to be called again.
  //
  // buffers: null: the names tell, or what was said before stays.
  // Errors: INVALID_ARGUMENT, they are not of the server's model; nothing has
  // changed then. UNAVAILABLE, a shard is dead for good.
  absl::StatusOr<int64_t> Start(
      const NamedTensors& weights,
      const std::optional<std::vector<std::string>>& buffers);

  // The parts as they are, put together. Errors: FAILED_PRECONDITION, there are
  // none yet. UNAVAILABLE.
  absl::StatusOr<NamedTensors> Pull() const;

  absl::StatusOr<SyncStats> GetStats() const;

 private:
  absl::StatusOr<std::vector<int64_t>> Versions() const;
  absl::StatusOr<int64_t> SetParts(
      const NamedTensors& weights,
      const std::optional<std::vector<std::string>>& buffers,
      int64_t version) const;

  const std::vector<AnyActorHandle> shards_;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_SHARDED_GRADIENTS_H_
