// Whether a worker's class has a method that the server calls by name.

#ifndef MINIRAY_PS_WORKER_METHODS_H_
#define MINIRAY_PS_WORKER_METHODS_H_

#include "absl/strings/string_view.h"
#include "runtime/api/miniray.h"

namespace miniray::ps {

// Workers are of this program or its plug-ins; of a foreign class nothing is
// known, and the answer is no.
bool HasMethod(const AnyActorHandle& worker, absl::string_view method);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_WORKER_METHODS_H_
