#include "ml/cli/flags.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <numeric>
#include <optional>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

constexpr size_t kHelpColumn = 28;
constexpr size_t kHelpWidth = 80;

std::string WithDashes(absl::string_view name) {
  return absl::StrReplaceAll(name, {{"_", "-"}});
}

std::string WithUnderscores(absl::string_view name) {
  return absl::StrReplaceAll(name, {{"-", "_"}});
}

bool IsNumber(const absl::CommandLineFlag& flag) {
  return flag.IsOfType<double>() || flag.IsOfType<float>() ||
         flag.IsOfType<std::optional<double>>();
}

// What a value looks like; empty for a bool, which needs none.
std::string Placeholder(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<bool>()) return "";
  if (flag.IsOfType<std::string>()) return "TEXT";
  return IsNumber(flag) ? "X" : "N";
}

std::string ExpectedValue(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<bool>()) return "true or false";
  if (IsNumber(flag)) return "a number";
  if (flag.IsOfType<uint64_t>() || flag.IsOfType<uint32_t>()) {
    return "a whole number, 0 or more";
  }
  return "a whole number";
}

bool IsListed(const ProgramHelp& help, absl::string_view name) {
  for (const ProgramHelp::Group& group : help.groups) {
    for (const std::string& flag : group.flags) {
      if (flag == name) return true;
    }
  }
  return false;
}

// Edits (insert, delete, replace) that make one word the other.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

// Returns "; did you mean --workers? See --help", or what to do without it.
std::string Suggestion(const ProgramHelp& help, absl::string_view name) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const ProgramHelp::Group& group : help.groups) {
    for (const std::string& flag : group.flags) {
      // A beginning or an end is as good as a letter too many.
      const size_t distance =
          absl::StartsWith(flag, name) || absl::EndsWith(flag, name)
              ? 1
              : EditDistance(flag, name);
      if (distance < best_distance) {
        best_distance = distance;
        best = flag;
      }
    }
  }
  return best.empty() ? "; see --help"
                      : absl::StrCat("; did you mean --", WithDashes(best),
                                     "? See --help");
}

absl::Status UsageError(absl::string_view message) {
  return absl::InvalidArgumentError(message);
}

// Adds `text`, wrapped, with every line after the first at `column`.
void Wrap(absl::string_view text, size_t position, size_t column,
          std::string* out) {
  for (const absl::string_view word :
       absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (position > column && position + 1 + word.size() > kHelpWidth) {
      absl::StrAppend(out, "\n", std::string(column, ' '));
      position = column;
    } else if (position > column) {
      out->push_back(' ');
      ++position;
    }
    absl::StrAppend(out, word);
    position += word.size();
  }
  out->push_back('\n');
}

void AppendFlagHelp(absl::string_view spelled, absl::string_view text,
                    std::string* out) {
  const std::string left = absl::StrCat("  --", spelled);
  absl::StrAppend(out, left);
  if (left.size() + 2 > kHelpColumn) {
    absl::StrAppend(out, "\n", std::string(kHelpColumn, ' '));
  } else {
    out->append(kHelpColumn - left.size(), ' ');
  }
  Wrap(text, kHelpColumn, kHelpColumn, out);
}

std::string OneLine(absl::string_view text) {
  std::string line(absl::StripAsciiWhitespace(text));
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

}  // namespace

std::string HelpText(const ProgramHelp& help) {
  std::string out = absl::StrCat("Usage: ", help.name, " [FLAG...]\n\n");
  Wrap(help.summary, 0, 0, &out);
  for (const ProgramHelp::Group& group : help.groups) {
    absl::StrAppend(&out, "\n", group.title, ":\n");
    for (const std::string& name : group.flags) {
      const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
      if (flag == nullptr) continue;
      std::string text = flag->Help();
      const std::string value = flag->DefaultValue();
      if (!value.empty() && !flag->IsOfType<bool>()) {
        absl::StrAppend(&text, " (default ", value, ")");
      }
      const std::string placeholder = Placeholder(*flag);
      AppendFlagHelp(absl::StrCat(WithDashes(name),
                                  placeholder.empty() ? "" : "=", placeholder),
                     text, &out);
    }
  }
  absl::StrAppend(&out, "\nGeneral:\n");
  AppendFlagHelp("address=HOST:PORT",
                 "head of the cluster; default $MINIRAY_ADDRESS, else a "
                 "cluster on this machine for the time of the run",
                 &out);
  AppendFlagHelp("plugin=FILE.so",
                 "strategies of one's own; once for each file", &out);
  AppendFlagHelp("tls-dir=DIR", "certificates, where the cluster speaks TLS",
                 &out);
  AppendFlagHelp("help", "show this and end", &out);
  if (!help.examples.empty()) absl::StrAppend(&out, "\nExamples:\n");
  for (const auto& [command, text] : help.examples) {
    absl::StrAppend(&out, "  # ", text, "\n  ", command, "\n");
  }
  return out;
}

absl::StatusOr<ParsedArguments> ParseFlags(const ProgramHelp& help,
                                           absl::Span<const char* const> args) {
  for (size_t i = 0; i < args.size(); ++i) {
    const absl::string_view arg = args[i];
    if (arg == "-h" || arg == "-help" || arg == "--help") {
      return ParsedArguments::kHelp;
    }
    absl::string_view rest = arg;
    if (!absl::ConsumePrefix(&rest, "--") && !absl::ConsumePrefix(&rest, "-")) {
      return UsageError(absl::StrCat(
          "unexpected argument '", arg,
          "'; every argument is a flag, such as --",
          help.groups.empty() ? "help"
                              : WithDashes(help.groups.front().flags.front())));
    }
    std::optional<absl::string_view> value;
    if (const size_t equals = rest.find('='); equals != rest.npos) {
      value = rest.substr(equals + 1);
      rest = rest.substr(0, equals);
    }
    std::string name = WithUnderscores(rest);
    bool negated = false;
    if (!IsListed(help, name) && absl::StartsWith(name, "no")) {
      // --nodistributed or --no-distributed.
      absl::string_view positive = absl::string_view(name).substr(2);
      absl::ConsumePrefix(&positive, "_");
      const absl::CommandLineFlag* flag =
          IsListed(help, positive) ? absl::FindCommandLineFlag(positive)
                                   : nullptr;
      if (flag != nullptr && flag->IsOfType<bool>() && !value.has_value()) {
        name = std::string(positive);
        negated = true;
      }
    }
    absl::CommandLineFlag* const flag =
        IsListed(help, name) ? absl::FindCommandLineFlag(name) : nullptr;
    if (flag == nullptr) {
      return UsageError(absl::StrCat("unknown flag ",
                                     arg.substr(0, arg.find('=')),
                                     Suggestion(help, name)));
    }
    const std::string spelled = absl::StrCat("--", WithDashes(name));
    if (flag->IsOfType<bool>()) {
      if (!value.has_value()) value = negated ? "false" : "true";
    } else if (!value.has_value()) {
      if (i + 1 == args.size()) {
        return UsageError(absl::StrCat(spelled, " needs a value: ", spelled,
                                       "=", Placeholder(*flag)));
      }
      value = args[++i];
    }
    std::string ignored;
    if (!flag->ParseFrom(*value, &ignored)) {
      return UsageError(absl::StrCat(spelled, " is '", *value, "'; expected ",
                                     ExpectedValue(*flag)));
    }
  }
  return ParsedArguments::kRun;
}

std::string FirstChanged(const ProgramHelp& help, absl::string_view title) {
  for (const ProgramHelp::Group& group : help.groups) {
    if (group.title != title) continue;
    for (const std::string& name : group.flags) {
      const absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
      if (flag != nullptr && flag->CurrentValue() != flag->DefaultValue()) {
        return absl::StrCat("--", WithDashes(name));
      }
    }
  }
  return "";
}

std::optional<int> ParseCommandLine(const ProgramHelp& help, int argc,
                                    char** argv) {
  const absl::StatusOr<ParsedArguments> parsed =
      ParseFlags(help, absl::MakeConstSpan(argv + 1, argc > 0 ? argc - 1 : 0));
  if (!parsed.ok()) return Fail(help, parsed.status(), kExitUsage);
  if (*parsed == ParsedArguments::kHelp) {
    std::cout << HelpText(help);
    return Finish(help, absl::OkStatus());
  }
  return std::nullopt;
}

int Finish(const ProgramHelp& help, const absl::Status& status) {
  if (!status.ok()) return Fail(help, status, kExitFailure);
  if (std::cout.flush()) return 0;
  return Fail(help,
              absl::UnavailableError(
                  "cannot write the output: is the disk behind it full?"),
              kExitFailure);
}

int Fail(const ProgramHelp& help, const absl::Status& status, int exit_code) {
  std::cerr << help.name << ": " << OneLine(status.message()) << std::endl;
  return exit_code;
}

}  // namespace miniray::ml
