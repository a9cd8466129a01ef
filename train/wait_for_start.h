// Waits until actors have started.

#ifndef MINIRAY_TRAIN_WAIT_FOR_START_H_
#define MINIRAY_TRAIN_WAIT_FOR_START_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"

namespace miniray::train {

// Each with its name for messages.
using NamedActors = std::vector<std::pair<std::string, AnyActorHandle>>;

// Blocks until all are ready; says once in the log, after 5 s, what it waits
// for.
//
// begin: what `timeout` counts from. cancelled: asked several times a second.
// Errors: of the first actor found dead, at once. DEADLINE_EXCEEDED after
// `timeout`, with how many started and what the others wait for. CANCELLED.
absl::Status WaitForStart(const Cluster& cluster, const NamedActors& actors,
                          absl::Time begin, absl::Duration timeout,
                          absl::FunctionRef<bool()> cancelled);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_WAIT_FOR_START_H_
