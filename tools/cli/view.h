// Something about a cluster that is shown again and again: on a terminal in
// place, elsewhere line by line.

#ifndef MINIRAY_TOOLS_CLI_VIEW_H_
#define MINIRAY_TOOLS_CLI_VIEW_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/cli/cancellation.h"
#include "tools/cli/command_line.h"
#include "tools/cli/frame.h"
#include "tools/cli/head_client.h"

namespace miniray::cli {

// Fetch is called from one thread, the others from another one.
class View {
 public:
  virtual ~View() = default;

  // Asks the head. Errors: what there was before is shown on.
  virtual absl::Status Fetch(absl::Duration timeout,
                             Cancellation* cancellation) = 0;

  // What there is to see since the last Fetch that went well.
  virtual Frame Show(const ScreenSize& size) = 0;

  // A key was pressed. What there is to see is asked for behind it.
  virtual void OnKey(char key) {}
};

// Of --interval. Errors: INVALID_ARGUMENT.
absl::Status CheckIntervalFlag(const CommandLine& line);

// Shows it on the terminal that stdout is, until a signal, the key q or
// --timeout. REQUIRES: IsScreen(STDOUT_FILENO). Returns the exit code.
int ShowOnScreen(const CommandLine& line, View* view);

// What is new since the last time, as text; empty: nothing is. Errors:
// UNAVAILABLE and DEADLINE_EXCEEDED mean that the head is away.
using TellNews = std::function<absl::StatusOr<std::string>(
    absl::Duration timeout, Cancellation* cancellation)>;

// Prints what `tell` returns, at once and then after each --interval, until it
// fails, a signal or --timeout. While a head that has answered before is away,
// it goes on, with one line on stderr. Returns the exit code.
int PrintNews(const CommandLine& line, const HeadClient& head,
              const TellNews& tell);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_VIEW_H_
