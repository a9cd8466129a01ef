#include "tools/cli/head_flags.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "runtime/head/state_folder.h"
#include "tools/cli/start_flags.h"

namespace miniray::cli {
namespace {

// Of the common ones, the one that has nothing to do with who may come in.
std::vector<std::string> RememberedFlags() {
  return JoinFlags({HeadTuningFlags(), {"silence_timeout"}});
}

std::string PathIn(const std::string& folder) {
  return absl::StrCat(folder, "/", kHeadFlagsFile);
}

}  // namespace

absl::Status RememberHeadFlags(const std::string& folder) {
  std::string text;
  for (const std::string& name : RememberedFlags()) {
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
  const std::vector<std::string> flags = RememberedFlags();
  for (const absl::string_view entry :
       absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    // Of a later version.
    if (absl::c_find(flags, parts.first) == flags.end()) {
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
