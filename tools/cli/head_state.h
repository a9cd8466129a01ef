// Where a head keeps its state, and what the last head there has left.

#ifndef MINIRAY_TOOLS_CLI_HEAD_STATE_H_
#define MINIRAY_TOOLS_CLI_HEAD_STATE_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/cli/start_options.h"

namespace miniray::cli {

// State folders of heads that were killed, and never started again, that are
// kept.
inline constexpr int kKeptHeadStates = 10;

struct HeadState {
  std::string folder;
  bool is_default = false;  // RuntimeDirectory()/head-<port>.
  int port = 0;
  std::string token;  // Of the last head there; empty: none.
};

// Without --state_dir the port names the folder, and port 0 stands for one that
// is free and of which no killed head has left anything. Errors: those of the
// file system. UNAVAILABLE, no port is free.
absl::StatusOr<HeadState> ChooseHeadState(const StartOptions& options);

// Removes the default folder of a cluster that has ended in good order.
void RemoveHeadState(const HeadState& state);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_HEAD_STATE_H_
