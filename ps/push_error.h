// What a push that not all workers have taken says of itself.

#ifndef MINIRAY_PS_PUSH_ERROR_H_
#define MINIRAY_PS_PUSH_ERROR_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ps/shard_messages.h"
#include "runtime/api/miniray.h"

namespace miniray::ps {

// Returns `first` with what the workers have now: so many the weights of this
// version, and those of `behind` not.
//
// first: why the push has failed; names a worker. version: of the weights that
//   were pushed; 0: not known.
absl::Status PushError(const absl::Status& first, int64_t version,
                       const std::vector<AnyActorHandle>& workers,
                       const std::vector<BehindWorker>& behind);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_PUSH_ERROR_H_
