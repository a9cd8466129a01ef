// The command line "miniray VERB [FLAG...]".
//
// The flags are Abseil's (flags.cc), but each verb takes only its own, and a
// mistake is one line of text instead of Abseil's exit.

#ifndef MINIRAY_TOOLS_CLI_COMMAND_LINE_H_
#define MINIRAY_TOOLS_CLI_COMMAND_LINE_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace miniray::cli {

struct Verb {
  std::string name;
  std::string help;  // What `miniray VERB --help` prints.
  std::set<std::string> flags;
  std::set<std::string> hidden_flags;  // For other processes of the runtime.
};

struct CommandLine {
  const Verb* verb = nullptr;
  bool help = false;  // --help or -h was there; the rest is unchecked.
  std::set<std::string> given;  // Names of the flags that were there.

  bool Has(absl::string_view flag) const {
    return given.count(std::string(flag)) > 0;
  }
};

// Sets the flags that `args` (without the program's name) contains. A flag is
// "--name=value" or "--name value", of a bool "--name", "--noname" or
// "--name=false"; dashes in the name count as underscores.
//
// Errors: INVALID_ARGUMENT, a message for the user.
absl::StatusOr<CommandLine> ParseCommandLine(
    const std::vector<std::string>& args, const std::vector<Verb>& verbs);

// Returns "--name=value" for those of `flags` that were given, to start another
// process with them.
std::vector<std::string> ForwardFlags(const CommandLine& line,
                                      const std::vector<std::string>& flags);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_COMMAND_LINE_H_
