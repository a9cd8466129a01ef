// Heads of this user that were killed on this machine: what they left can be
// gone on with, or ended.
//
// A head's state lies in RuntimeDirectory()/head-PORT, or where --state_dir
// says; then a symbolic link RuntimeDirectory()/head-... leads there.

#ifndef MINIRAY_TOOLS_CLI_KILLED_HEADS_H_
#define MINIRAY_TOOLS_CLI_KILLED_HEADS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/head/state_folder.h"

namespace miniray::cli {

// State folders of heads that were killed, and never started again, that are
// kept.
inline constexpr int kKeptHeadStates = 10;

inline constexpr char kHeadStatePrefix[] = "head-";

struct KilledHead {
  std::string folder;  // Of its state.
  bool is_default = false;
  StateFolder::Remembered left;
  std::string address;  // See AddressOf.
};

// HOST:PORT at which others reached the head that left this.
std::string AddressOf(const StateFolder::Remembered& left);

// Returns those whose state can be read and is not in use, newest first.
std::vector<KilledHead> ListKilledHeads();

// The one that listened at `address`, if there is one.
std::optional<KilledHead> FindKilledHead(const std::string& address);

// True if `address` (HOST:PORT) is one at which it listened.
bool ListenedAt(const KilledHead& head, const std::string& address);

// What a user may do about it, in words and commands.
std::string Advice(const KilledHead& head);

// The next head there begins a new cluster. Errors: FAILED_PRECONDITION,
// another head has taken the state meanwhile; those of the file system.
absl::Status EndCluster(const KilledHead& head);
// The same, of a head of which the folder alone is known.
absl::Status EndClusterIn(const std::string& folder);

// Removes what finished heads and all but the newest kKeptHeadStates killed
// ones have left. Does what it can: another process may do the same at this
// moment.
void RemoveOldHeadStates();

// Makes, and removes, the link to a folder that --state_dir names.
absl::Status LinkHeadState(const std::string& folder);
void UnlinkHeadState(const std::string& folder);

// Returns the address at which other machines reach a head that listens on
// `host`.
std::string AdvertisedHost(const std::string& host);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_KILLED_HEADS_H_
