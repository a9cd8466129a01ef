// The command line "miniray VERB [ARGUMENT|FLAG...] [-- COMMAND...]".
//
// The flags are Abseil's (flags.cc), but each verb takes only its own, and a
// mistake is one line of text instead of Abseil's exit.

#ifndef MINIRAY_TOOLS_CLI_COMMAND_LINE_H_
#define MINIRAY_TOOLS_CLI_COMMAND_LINE_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace miniray::cli {

struct Verb {
  std::string name;
  std::string help;  // What `miniray VERB --help` prints.
  // What `miniray VERB ARGUMENT --help` prints, by the argument.
  std::map<std::string, std::string> help_on = {};
  std::set<std::string> flags;
  std::set<std::string> hidden_flags;  // For other processes of the runtime.
  std::set<std::string> repeated_flags = {};  // Each may come several times.
  size_t max_arguments = 0;                   // That are no flags.
  bool takes_command = false;                 // What follows "--".
};

struct CommandLine {
  const Verb* verb = nullptr;
  // --help or -h was there; the rest is unchecked, and only a first argument
  // that stands right behind the verb is kept.
  bool help = false;
  std::set<std::string> given;         // Names of the flags that were there.
  std::vector<std::string> arguments;  // Those that are no flags.
  std::map<std::string, std::vector<std::string>> repeated;
  std::vector<std::string> command;  // What follows "--".

  bool Has(absl::string_view flag) const {
    return given.count(std::string(flag)) > 0;
  }
  std::string Argument(size_t i) const {
    return i < arguments.size() ? arguments[i] : "";
  }
  std::vector<std::string> Repeated(const std::string& flag) const {
    const auto it = repeated.find(flag);
    return it == repeated.end() ? std::vector<std::string>() : it->second;
  }
};

// Sets the flags that `args` (without the program's name) contains. A flag is
// "--name=value" or "--name value", of a bool "--name", "--noname", "--no_name"
// or "--name=false"; dashes in the name count as underscores.
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
