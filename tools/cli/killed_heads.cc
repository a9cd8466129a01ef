#include "tools/cli/killed_heads.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/base/net.h"
#include "runtime/base/process_records.h"
#include "runtime/base/status_macros.h"
#include "tools/cli/shell_word.h"

namespace miniray::cli {
namespace {

namespace fs = std::filesystem;

// One in the runtime folder.
struct Entry {
  std::string path;
  std::string folder;  // Where a link leads, else the path.
  bool is_link = false;
};

std::vector<Entry> Entries() {
  std::vector<Entry> entries;
  const absl::StatusOr<std::string> runtime_folder = RuntimeDirectory();
  if (!runtime_folder.ok()) return entries;
  std::error_code error;
  for (fs::directory_iterator file(*runtime_folder, error), end;
       !error && file != end; file.increment(error)) {
    if (!absl::StartsWith(file->path().filename().string(), kHeadStatePrefix)) {
      continue;
    }
    std::error_code gone;
    Entry entry{.path = file->path().string(),
                .folder = file->path().string(),
                .is_link = file->is_symlink(gone)};
    if (entry.is_link) {
      entry.folder = fs::read_symlink(entry.path, gone).string();
    } else if (!file->is_directory(gone)) {
      continue;
    }
    if (!gone) entries.push_back(std::move(entry));
  }
  return entries;
}

// Where it is not known, it is most likely the default.
std::string ListenHost(const StateFolder::Remembered& left) {
  return left.host.empty() ? "127.0.0.1" : left.host;
}

bool Has(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool IsFinished(const Entry& entry) { return Has(entry.folder + "/finished"); }

// What can be read of it; nothing if it is in use.
std::optional<KilledHead> Killed(const Entry& entry) {
  if (StateFolder::InUse(entry.folder)) return std::nullopt;
  absl::StatusOr<StateFolder::Remembered> left =
      StateFolder::Recall(entry.folder);
  if (!left.ok()) return std::nullopt;
  return KilledHead{.folder = entry.folder,
                    .is_default = !entry.is_link,
                    .left = *left,
                    .address = AddressOf(*left)};
}

std::string StartCommand(const KilledHead& head) {
  std::string command = "miniray start --head";
  const auto add = [&command](absl::string_view flag,
                              const std::string& value) {
    if (!value.empty()) {
      absl::StrAppend(&command, " --", flag, " ", ShellWord(value));
    }
  };
  add("host", head.left.host);
  add("port", absl::StrCat(head.left.port));
  if (!head.is_default) add("state_dir", head.folder);
  add("tls_dir", head.left.tls_dir);
  return command;
}

void RemoveEntry(const Entry& entry) {
  std::error_code error;
  if (entry.is_link) {
    fs::remove(entry.path, error);  // The folder is its owner's.
  } else {
    (void)StateFolder::Remove(entry.folder);
  }
}

}  // namespace

std::string AddressOf(const StateFolder::Remembered& left) {
  return JoinHostPort(AdvertisedHost(ListenHost(left)), left.port);
}

std::vector<KilledHead> ListKilledHeads() {
  std::vector<std::pair<fs::file_time_type, KilledHead>> found;
  for (const Entry& entry : Entries()) {
    std::optional<KilledHead> head = Killed(entry);
    if (!head.has_value()) continue;
    std::error_code error;
    found.emplace_back(fs::last_write_time(entry.folder + "/port", error),
                       *std::move(head));
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<KilledHead> heads;
  for (auto& [time, head] : found) heads.push_back(std::move(head));
  return heads;
}

bool ListenedAt(const KilledHead& head, const std::string& address) {
  return ServesAddress({.role = ProcessRole::kHead,
                        .address = head.address,
                        .listen_host = ListenHost(head.left)},
                       address);
}

std::optional<KilledHead> FindKilledHead(const std::string& address) {
  for (KilledHead& head : ListKilledHeads()) {
    if (ListenedAt(head, address)) return std::move(head);
  }
  return std::nullopt;
}

std::string Advice(const KilledHead& head) {
  return absl::StrCat(
      "the head at ", head.address,
      " was killed: go on with its cluster with: ", StartCommand(head),
      "; or end it with: miniray stop --address ", head.address);
}

absl::Status EndCluster(const KilledHead& head) {
  if (head.is_default) return StateFolder::Remove(head.folder);
  MR_RETURN_IF_ERROR(StateFolder::Finish(head.folder));
  UnlinkHeadState(head.folder);
  return absl::OkStatus();
}

absl::Status EndClusterIn(const std::string& folder) {
  MR_ASSIGN_OR_RETURN(const std::string runtime_folder, RuntimeDirectory());
  return EndCluster(
      {.folder = folder,
       .is_default = absl::StartsWith(
           folder, absl::StrCat(runtime_folder, "/", kHeadStatePrefix))});
}

void RemoveOldHeadStates() {
  std::vector<std::pair<fs::file_time_type, Entry>> killed;
  for (Entry& entry : Entries()) {
    if (StateFolder::InUse(entry.folder)) continue;
    if (IsFinished(entry) || (entry.is_link && !Has(entry.folder))) {
      RemoveEntry(entry);  // E.g. after `stop --force`.
    } else if (StateFolder::Recall(entry.folder).ok()) {
      std::error_code error;
      const auto time = fs::last_write_time(entry.folder + "/port", error);
      killed.emplace_back(time, std::move(entry));
    }
  }
  std::sort(killed.begin(), killed.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = kKeptHeadStates; i < killed.size(); ++i) {
    RemoveEntry(killed[i].second);
  }
}

absl::Status LinkHeadState(const std::string& folder) {
  MR_ASSIGN_OR_RETURN(const std::string runtime_folder, RuntimeDirectory());
  for (const Entry& entry : Entries()) {
    if (entry.folder == folder) return absl::OkStatus();
  }
  const std::string path =
      absl::StrCat(runtime_folder, "/", kHeadStatePrefix, NewId("at"));
  std::error_code error;
  fs::create_directory_symlink(folder, path, error);
  if (!error) return absl::OkStatus();
  return ErrnoStatus(error.value(), absl::StrCat("make the link ", path));
}

void UnlinkHeadState(const std::string& folder) {
  for (const Entry& entry : Entries()) {
    if (entry.is_link && entry.folder == folder) RemoveEntry(entry);
  }
}

std::string AdvertisedHost(const std::string& host) {
  if (host != "0.0.0.0" && host != "::") return host;
  // An address reserved for documentation: it lies behind the default route.
  const HostPort outside =
      host == "::" ? HostPort{"2001:db8::1", 9} : HostPort{"192.0.2.1", 9};
  return LocalAddressTowards(outside).value_or(host == "::" ? "::1"
                                                            : "127.0.0.1");
}

}  // namespace miniray::cli
