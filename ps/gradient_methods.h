// What a parameter server needs beside its strategy where that takes gradients.

#ifndef MINIRAY_PS_GRADIENT_METHODS_H_
#define MINIRAY_PS_GRADIENT_METHODS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "ps/server_options.h"
#include "runtime/api/miniray.h"

namespace miniray::ps {

// INVALID_ARGUMENT if options are set that only concern gradients, and the
// strategy does not take them, or the other way round.
absl::Status CheckGradientOptions(absl::string_view strategy,
                                  bool takes_gradients,
                                  const ServerOptions& options);

// FAILED_PRECONDITION if a server of gradients that has these options does not
// pull them: with several shards, or compression.
absl::Status CheckPullsGradients(const ServerOptions& options);

// Gives PushGradients threads of its own, enough for all workers that may wait
// in it.
void AddGradientThreads(const ServerOptions& options, ActorOptions* actor);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_GRADIENT_METHODS_H_
