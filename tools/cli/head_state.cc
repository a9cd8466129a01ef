#include "tools/cli/head_state.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/head/state_folder.h"

namespace miniray::cli {
namespace {

constexpr char kPrefix[] = "head-";
constexpr int kPortTries = 100;

// Does what it can: another process may do the same at this moment.
void RemoveOldHeadStates(const std::string& runtime_folder) {
  std::error_code error;
  std::vector<std::pair<std::filesystem::file_time_type, std::string>> killed;
  for (std::filesystem::directory_iterator file(runtime_folder, error), end;
       !error && file != end; file.increment(error)) {
    const std::string path = file->path().string();
    if (!absl::StartsWith(file->path().filename().string(), kPrefix) ||
        !file->is_directory(error) || StateFolder::InUse(path)) {
      continue;
    }
    if (std::filesystem::exists(path + "/finished", error)) {
      std::filesystem::remove_all(path, error);  // After `stop --force`.
      continue;
    }
    if (!StateFolder::Recall(path).ok()) continue;
    killed.emplace_back(file->last_write_time(error), path);
  }
  std::sort(killed.begin(), killed.end(), std::greater<>());
  for (size_t i = kKeptHeadStates; i < killed.size(); ++i) {
    std::filesystem::remove_all(killed[i].second, error);
  }
}

}  // namespace

absl::StatusOr<HeadState> ChooseHeadState(const StartOptions& options) {
  HeadState state;
  state.port = options.port;
  if (!options.state_dir.empty()) {
    state.folder = options.state_dir;
  } else {
    MR_ASSIGN_OR_RETURN(const std::string runtime_folder, RuntimeDirectory());
    RemoveOldHeadStates(runtime_folder);
    state.is_default = true;
    for (int i = 0; i < kPortTries; ++i) {
      if (options.port == 0) {
        MR_ASSIGN_OR_RETURN(state.port, FreePort(options.host));
      }
      state.folder = absl::StrCat(runtime_folder, "/", kPrefix, state.port);
      std::error_code error;
      if (options.port != 0 || !std::filesystem::exists(state.folder, error)) {
        break;
      }
    }
  }
  absl::StatusOr<StateFolder::Remembered> last =
      StateFolder::Recall(state.folder);
  if (last.ok()) {
    state.token = std::move(last->token);
    if (!options.state_dir.empty() && !options.port_given && last->port != 0) {
      state.port = last->port;
    }
  } else if (!absl::IsNotFound(last.status())) {
    return last.status();
  }
  return state;
}

void RemoveHeadState(const HeadState& state) {
  if (!state.is_default) return;
  std::error_code error;
  std::filesystem::remove_all(state.folder, error);
}

}  // namespace miniray::cli
