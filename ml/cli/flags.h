// The command line of a program: ABSL_FLAGs, in the spelling and with the
// messages that users expect.
//
//   ABSL_FLAG(int, batch_size, 128, "images in a step");
//
//   int main(int argc, char** argv) {
//     miniray::Init(argc, argv);
//     if (auto exit_code = ml::ParseCommandLine(kHelp, argc, argv)) {
//       return *exit_code;
//     }
//     ...
//
// Takes --batch-size 64, --batch-size=64, --batch_size ..., one dash or two,
// --distributed and --nodistributed. absl::ParseCommandLine is not used: it
// wants underscores, calls exit itself, and with 1 for help and for bad usage
// alike.

#ifndef MINIRAY_ML_CLI_FLAGS_H_
#define MINIRAY_ML_CLI_FLAGS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace miniray::ml {

struct ProgramHelp {
  std::string name;     // "train"
  std::string summary;  // What it does, in one or two sentences.

  // Flags by group, in the order in which help shows them. Only these are
  // accepted: libraries define flags, too.
  struct Group {
    std::string title;
    std::vector<std::string> flags;
  };
  std::vector<Group> groups;

  // Command lines with a word on each.
  std::vector<std::pair<std::string, std::string>> examples;
};

// Returns what --help shows, wrapped at 80 columns: with the flags that
// miniray::Init takes, which every program has.
std::string HelpText(const ProgramHelp& help);

enum class ParsedArguments { kRun, kHelp };

// Sets the flags from the arguments (without the program's name).
//
// Errors: InvalidArgument, in words for a user, for a flag that is unknown
// (with the one that was probably meant), has no value or a bad one, and for
// any argument that is no flag.
absl::StatusOr<ParsedArguments> ParseFlags(const ProgramHelp& help,
                                           absl::Span<const char* const> args);

// The first flag of the group of that title that does not have its default
// value, as a user spells it ("--workers"); empty: all have.
std::string FirstChanged(const ProgramHelp& help, absl::string_view title);

inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

// Parses main's arguments. Returns the exit code if the program is to end now:
// 0 after --help, kExitUsage after an error, which is printed.
std::optional<int> ParseCommandLine(const ProgramHelp& help, int argc,
                                    char** argv);

// Ends a program: prints the status, if it is an error, as Fail does. Returns
// the exit code: kExitFailure, too, where what was written to stdout reached
// nobody (a full disk), which it says.
int Finish(const ProgramHelp& help, const absl::Status& status);

// Prints "NAME: MESSAGE" as one line to stderr and returns the exit code.
int Fail(const ProgramHelp& help, const absl::Status& status, int exit_code);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_CLI_FLAGS_H_
