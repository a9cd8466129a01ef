#include "ps/server_state.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

namespace fs = std::filesystem;

// A file is these eight bytes, the size of what follows (64 bits,
// little-endian), and the ServerState as a serialized Value.
constexpr size_t kMagicBytes = 8;
constexpr std::string_view kMagic("MRPS\0\0\0\6", kMagicBytes);
constexpr size_t kHeaderBytes = 16;

std::string PathIn(const std::string& folder) {
  return absl::StrCat(folder, "/", kServerStateFile);
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("rename ", from, " to ", to));
}

// Makes the folder, for good: the disk has its name, too.
absl::Status MakeFolder(const std::string& folder) {
  std::vector<std::string> parents;  // Of what is not there yet.
  std::error_code error;
  for (fs::path path = folder; !path.empty() && !fs::exists(path, error);
       path = path.parent_path()) {
    parents.push_back(path.has_parent_path() ? path.parent_path().string()
                                             : ".");
  }
  MR_RETURN_IF_ERROR(MakeDirectories(folder));
  for (const std::string& parent : parents) {
    MR_RETURN_IF_ERROR(SyncToDisk(parent));
  }
  return absl::OkStatus();
}

absl::Status DataLoss(const std::string& path, absl::string_view why) {
  return absl::DataLossError(absl::StrCat(
      "the state of a parameter server, ", path, ", is damaged (", why,
      "); restore it from a copy, or remove it to begin anew"));
}

}  // namespace

std::string OtherStrategyText(const StrategyId& other, const StrategyId& own) {
  const std::string text =
      absl::StrCat("a server with the strategy ", other.text,
                   ", and this one has ", own.text);
  if (other.name != own.name) return text;
  const OptionMap::Map& theirs = other.options.values();
  const OptionMap::Map& ours = own.options.values();
  for (const auto* const some : {&theirs, &ours}) {
    for (const auto& [name, value] : *some) {
      const auto their = theirs.find(name);
      const auto our = ours.find(name);
      if (their == theirs.end() || our == ours.end() ||
          their->second != our->second) {
        return absl::StrCat(text, ": they differ in the option '", name, "'");
      }
    }
  }
  return "";
}

absl::Status SaveServerState(const std::string& folder,
                             const ServerState& state) {
  MR_ASSIGN_OR_RETURN(const absl::Cord value, EncodeValue(state));
  MR_RETURN_IF_ERROR(MakeFolder(folder));
  const std::string path = PathIn(folder);
  // Always the same name: what a killed process left is written over.
  const std::string next = path + ".next";
  std::string header(kMagic);
  header.resize(kHeaderBytes);
  const uint64_t size = value.size();
  for (size_t i = 0; i < 8; ++i) {
    header[kMagicBytes + i] = static_cast<char>(size >> (8 * i) & 0xff);
  }
  std::vector<absl::string_view> chunks = {header};
  for (absl::string_view chunk : value.Chunks()) chunks.push_back(chunk);
  absl::Status status = WriteToDisk(next, chunks);
  if (status.ok()) status = Rename(next, path);
  if (!status.ok()) {
    unlink(next.c_str());
    return status;
  }
  return SyncToDisk(folder);
}

absl::StatusOr<std::optional<ServerState>> LoadServerState(
    const std::string& folder) {
  const std::string path = PathIn(folder);
  absl::StatusOr<std::string> bytes = ReadFile(path);
  if (absl::IsNotFound(bytes.status())) return std::nullopt;
  if (!bytes.ok()) return bytes.status();
  if (bytes->size() >= kHeaderBytes &&
      bytes->starts_with(kMagic.substr(0, kMagicBytes - 1)) &&
      !bytes->starts_with(kMagic)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the state of a parameter server, ", path,
        ", is of another release (format ", (*bytes)[kMagicBytes - 1] & 0xff,
        ", and this one reads ", kMagic.back() & 0xff,
        "); go on with that release, or remove it to begin anew"));
  }
  if (bytes->size() < kHeaderBytes || !bytes->starts_with(kMagic)) {
    return DataLoss(path, "it does not begin as such a file");
  }
  uint64_t size = 0;
  for (size_t i = 0; i < 8; ++i) {
    size |= uint64_t{static_cast<unsigned char>((*bytes)[kMagicBytes + i])}
            << (8 * i);
  }
  if (size != bytes->size() - kHeaderBytes) {
    return DataLoss(path, "it is cut short");
  }
  auto held = std::make_shared<std::string>(*std::move(bytes));
  const absl::string_view value = absl::string_view(*held).substr(kHeaderBytes);
  ServerState state;
  const absl::Status decoded = DecodeValue(
      absl::MakeCordFromExternal(value, [held](absl::string_view) {}), &state);
  if (!decoded.ok()) return DataLoss(path, decoded.message());
  return state;
}

absl::Status MoveServerState(const std::string& from, const std::string& to) {
  MR_RETURN_IF_ERROR(Rename(PathIn(from), PathIn(to)));
  return SyncToDisk(to);
}

absl::Status RemoveServerState(const std::string& folder) {
  if (unlink(PathIn(folder).c_str()) == 0 || errno == ENOENT) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat("remove ", PathIn(folder)));
}

absl::StatusOr<std::optional<ServerState>> LoadOwnServerState(
    const std::string& folder, const StrategyId& strategy,
    int64_t num_restarts) {
  MR_ASSIGN_OR_RETURN(std::optional<ServerState> state,
                      LoadServerState(folder));
  if (!state.has_value() && num_restarts > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the parameter server restarts, but its state is not in ", folder,
        " here; use a folder that all machines share, or keep the server on "
        "one node (ActorOptions::node_id)"));
  }
  const std::string other =
      state.has_value() ? OtherStrategyText(state->strategy, strategy) : "";
  if (other.empty()) return state;
  return absl::FailedPreconditionError(
      absl::StrCat(folder, " has the state of ", other,
                   "; use another folder, or empty it"));
}

}  // namespace miniray::ps
