#include "tools/cli/command_line.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"

namespace miniray::cli {
namespace {

bool TakesFlag(const Verb& verb, const std::string& name) {
  return verb.flags.count(name) > 0 || verb.hidden_flags.count(name) > 0 ||
         verb.repeated_flags.count(name) > 0;
}

absl::string_view ExpectedKind(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<int>() || flag.IsOfType<int64_t>()) return "a whole number";
  if (flag.IsOfType<double>()) return "a number";
  if (flag.IsOfType<bool>()) return "true or false";
  if (flag.IsOfType<absl::Duration>()) return "a time, e.g. 10s or 500ms";
  return "something else";
}

struct Argument {
  std::string name;  // As Abseil knows it.
  std::optional<std::string> value;
};

Argument SplitArgument(absl::string_view text) {
  const size_t equals = text.find('=');
  Argument argument;
  argument.name = absl::StrReplaceAll(text.substr(2, equals - 2), {{"-", "_"}});
  if (equals != absl::string_view::npos) {
    argument.value = std::string(text.substr(equals + 1));
  }
  return argument;
}

absl::Status SetFlag(const std::string& name, const std::string& value) {
  absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
  if (flag == nullptr) {
    return absl::InternalError(absl::StrCat("flag --", name, " is missing"));
  }
  std::string error;
  if (flag->ParseFrom(value, &error)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", name, "=", value, ": expected ", ExpectedKind(*flag)));
}

bool IsBool(const std::string& name) {
  const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
  return flag != nullptr && flag->IsOfType<bool>();
}

std::string VerbNames(const std::vector<Verb>& verbs) {
  return absl::StrJoin(verbs, ", ", [](std::string* out, const Verb& verb) {
    absl::StrAppend(out, verb.name);
  });
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(
    const std::vector<std::string>& args, const std::vector<Verb>& verbs) {
  if (args.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("say what to do: ", VerbNames(verbs), " or help"));
  }
  const auto verb =
      std::find_if(verbs.begin(), verbs.end(),
                   [&](const Verb& known) { return known.name == args[0]; });
  if (verb == verbs.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown command '", args[0],
                     "'; there are: ", VerbNames(verbs), ", help"));
  }
  CommandLine line;
  line.verb = &*verb;
  for (size_t i = 1; i < args.size(); ++i) {
    if (args[i] == "--" && verb->takes_command) break;
    if (args[i] == "--help" || args[i] == "-h") {
      line.help = true;
      if (!absl::StartsWith(args[1], "-")) line.arguments.push_back(args[1]);
      return line;
    }
  }
  const std::string hint =
      absl::StrCat("; see: miniray ", verb->name, " --help");
  for (size_t i = 1; i < args.size(); ++i) {
    if (args[i] == "--" && verb->takes_command) {
      line.command.assign(args.begin() + static_cast<ptrdiff_t>(i) + 1,
                          args.end());
      break;
    }
    if (!absl::StartsWith(args[i], "-") &&
        line.arguments.size() < verb->max_arguments) {
      line.arguments.push_back(args[i]);
      continue;
    }
    if (!absl::StartsWith(args[i], "--") || args[i].size() == 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("unexpected argument '", args[i], "'", hint));
    }
    Argument argument = SplitArgument(args[i]);
    for (const absl::string_view no : {"no", "no_"}) {
      if (TakesFlag(*verb, argument.name) || argument.value.has_value() ||
          !absl::StartsWith(argument.name, no)) {
        continue;
      }
      const std::string positive = argument.name.substr(no.size());
      if (TakesFlag(*verb, positive) && IsBool(positive)) {
        argument = {positive, "false"};
      }
    }
    if (!TakesFlag(*verb, argument.name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "unknown flag '", args[i].substr(0, args[i].find('=')), "'", hint));
    }
    if (!argument.value.has_value() && IsBool(argument.name)) {
      argument.value = "true";
    }
    if (!argument.value.has_value()) {
      // "-1" is a value, "--port" rather a forgotten one.
      if (i + 1 == args.size() || absl::StartsWith(args[i + 1], "--")) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", argument.name, " needs a value", hint));
      }
      argument.value = args[++i];
    }
    if (verb->repeated_flags.count(argument.name) > 0) {
      line.repeated[argument.name].push_back(*argument.value);
      continue;
    }
    MR_RETURN_IF_ERROR(SetFlag(argument.name, *argument.value));
    line.given.insert(argument.name);
  }
  return line;
}

std::vector<std::string> ForwardFlags(const CommandLine& line,
                                      const std::vector<std::string>& flags) {
  std::vector<std::string> result;
  for (const std::string& name : flags) {
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    if (flag == nullptr || !line.Has(name)) continue;
    result.push_back(absl::StrCat("--", name, "=", flag->CurrentValue()));
  }
  return result;
}

}  // namespace miniray::cli
