// Where a head keeps its state, and what it takes over from the last head
// there.

#ifndef MINIRAY_TOOLS_CLI_HEAD_STATE_H_
#define MINIRAY_TOOLS_CLI_HEAD_STATE_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/cli/start_options.h"

namespace miniray::cli {

struct HeadState {
  std::string folder;
  bool is_default = false;  // RuntimeDirectory()/head-<port>.
  bool resumes = false;     // A head was killed there: its cluster goes on.
  std::string host;         // IP address to listen on.
  int port = 0;
  std::string token;    // Empty: none.
  std::string tls_dir;  // Empty: no TLS.
};

// Without --state_dir the port names the folder, and port 0 stands for one that
// is free and of which no killed head has left anything. Where one has, what
// the user did not give is as it was. `token` and `tls_dir`: what the user
// gave, empty: nothing.
//
// Errors: FAILED_PRECONDITION, what the user gave is not what the killed head's
// nodes and drivers look for; both values are named, but for tokens.
// UNAVAILABLE, no port is free. Those of the file system.
absl::StatusOr<HeadState> ChooseHeadState(const StartOptions& options,
                                          const std::string& token,
                                          const std::string& tls_dir);

// Removes the default folder of a cluster that has ended, or the link to
// another one.
void RemoveHeadState(const HeadState& state);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_HEAD_STATE_H_
