#include "tools/cli/head_flags.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "runtime/head/state_folder.h"

namespace miniray::cli {
namespace {

constexpr absl::string_view kFlags[] = {"lease",
                                        "driver_grace",
                                        "infeasible_timeout",
                                        "group_patience",
                                        "group_hold",
                                        "silence_timeout",
                                        "max_restart_delay",
                                        "long_life",
                                        "reconnect_timeout",
                                        "session_life",
                                        "max_reconnect_pause",
                                        "dashboard_port",
                                        "package_limit",
                                        "max_state_bytes"};

std::string PathIn(const std::string& folder) {
  return absl::StrCat(folder, "/", kHeadFlagsFile);
}

}  // namespace

absl::Status RememberHeadFlags(const std::string& folder) {
  std::string text;
  for (const absl::string_view name : kFlags) {
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    const std::string value = flag->CurrentValue();
    if (value == flag->DefaultValue()) continue;
    absl::StrAppend(&text, name, "=", value, "\n");
  }
  return WriteFileAtomically(PathIn(folder), text, 0600);
}

absl::Status RecallHeadFlags(const CommandLine& line,
                             const std::string& folder) {
  const std::string path = PathIn(folder);
  // An earlier version left none.
  if (access(path.c_str(), F_OK) != 0) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  for (const absl::string_view entry :
       absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    // Of a later version.
    if (std::find(std::begin(kFlags), std::end(kFlags), parts.first) ==
        std::end(kFlags)) {
      continue;
    }
    if (line.Has(parts.first)) continue;
    std::string error;
    if (!absl::FindCommandLineFlag(parts.first)
             ->ParseFrom(parts.second, &error)) {
      return absl::DataLossError(absl::StrCat(
          path, " is damaged (", entry, ": ", error,
          "): give what it says as flags, after you have removed it"));
    }
  }
  return absl::OkStatus();
}

}  // namespace miniray::cli
