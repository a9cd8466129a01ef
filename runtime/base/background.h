// One thread of the process for small things that must happen later, or not
// where they are noticed: back-off, time limits, and the destruction of gRPC
// objects, which must not happen inside their own callbacks.

#ifndef MINIRAY_RUNTIME_BASE_BACKGROUND_H_
#define MINIRAY_RUNTIME_BASE_BACKGROUND_H_

#include <functional>

#include "absl/time/time.h"

namespace miniray {

// Runs `task` in the background thread, after `delay`; tasks that are due run
// in the order of their times. A task must not block for long. Tasks that are
// not due when the process ends do not run. Thread-safe.
void RunInBackground(std::function<void()> task,
                     absl::Duration delay = absl::ZeroDuration());

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_BACKGROUND_H_
