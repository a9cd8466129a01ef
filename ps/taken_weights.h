// Knows which workers have the weights that they were sent last. What the
// others have is no contribution to a synchronisation: one that has restarted
// since has what it began with, and one whose SetWeights failed what it had
// before.

#ifndef MINIRAY_PS_TAKEN_WEIGHTS_H_
#define MINIRAY_PS_TAKEN_WEIGHTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "runtime/api/miniray.h"

namespace miniray::ps {

// Not thread-safe.
class TakenWeights {
 public:
  // The call sends weights to the worker.
  void NoteSent(const AnyActorHandle& worker,
                std::shared_ptr<miniray::internal::CallState> call);

  // process: of the worker, that a contribution came from (CallState::process),
  //   which was asked for after NoteSent.
  // all_needed: who needs all workers has been told of those that failed to
  //   take weights; only restarts are looked for.
  // Errors: FAILED_PRECONDITION, it does not have what it was sent last; the
  // message does not name the worker.
  absl::Status Check(const AnyActorHandle& worker,
                     std::optional<int32_t> process, bool all_needed) const;

 private:
  // By actor: the last call that sent weights.
  std::map<std::string, std::shared_ptr<miniray::internal::CallState>> sent_;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_TAKEN_WEIGHTS_H_
