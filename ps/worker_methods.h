// What is known of a worker's class.

#ifndef MINIRAY_PS_WORKER_METHODS_H_
#define MINIRAY_PS_WORKER_METHODS_H_

#include "absl/strings/string_view.h"
#include "runtime/api/miniray.h"

namespace miniray::ps {

// Workers are of this program or its plug-ins; of a foreign class nothing is
// known, and the answer is no.

// Whether the server may call this method of it.
bool HasMethod(const AnyActorHandle& worker, absl::string_view method);

// Whether a worker that restarts has only what its constructor makes, for its
// class has no RestoreState.
bool BeginsAnew(const AnyActorHandle& worker);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_WORKER_METHODS_H_
