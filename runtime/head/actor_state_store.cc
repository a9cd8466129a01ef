#include "runtime/head/actor_state_store.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

constexpr size_t kMaxIdBytes = 100;

// It becomes part of a path.
bool IsFileName(absl::string_view id) {
  return !id.empty() && id.size() <= kMaxIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  c == '-' || c == '_';
         });
}

}  // namespace

ActorStateStore::Shard& ActorStateStore::ShardOf(const std::string& actor_id) {
  return shards_[std::hash<std::string>()(actor_id) % shards_.size()];
}

std::string ActorStateStore::PathOf(const std::string& actor_id) const {
  return absl::StrCat(folder_, "/", actor_id);
}

absl::Status ActorStateStore::Admit(const Shard& shard,
                                    const std::string& actor_id,
                                    int32_t incarnation) const {
  if (!IsFileName(actor_id)) {
    return absl::InvalidArgumentError(
        "an actor that keeps state has an id of at most 100 letters, digits, "
        "'-' and '_'");
  }
  const auto fence = shard.fence.find(actor_id);
  if (fence != shard.fence.end() && incarnation < fence->second) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the actor ", actor_id, " was started again (start ", fence->second,
        "): this process (start ", incarnation, ") is void"));
  }
  return check_(actor_id, incarnation);
}

absl::Status ActorStateStore::Save(const std::string& actor_id,
                                   int32_t incarnation,
                                   absl::string_view state) {
  if (static_cast<int64_t>(state.size()) > max_state_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the actor's state has ", state.size(), " bytes; the head keeps ",
        max_state_bytes_, " (miniray start --head --max_state_bytes)"));
  }
  Shard& shard = ShardOf(actor_id);
  absl::MutexLock lock(&shard.mu);
  MR_RETURN_IF_ERROR(Admit(shard, actor_id, incarnation));
  absl::Status status = WriteFileAtomically(PathOf(actor_id), state, 0600);
  if (status.code() == absl::StatusCode::kNotFound) {
    MR_RETURN_IF_ERROR(MakeDirectories(folder_, 0700));
    status = WriteFileAtomically(PathOf(actor_id), state, 0600);
  }
  return status;
}

absl::StatusOr<std::string> ActorStateStore::Load(const std::string& actor_id,
                                                  int32_t incarnation) {
  Shard& shard = ShardOf(actor_id);
  absl::MutexLock lock(&shard.mu);
  MR_RETURN_IF_ERROR(Admit(shard, actor_id, incarnation));
  shard.fence[actor_id] = incarnation;
  absl::StatusOr<std::string> state = ReadFile(PathOf(actor_id));
  if (state.status().code() == absl::StatusCode::kNotFound) {
    return absl::NotFoundError(
        absl::StrCat("the actor ", actor_id, " has saved no state"));
  }
  return state;
}

void ActorStateStore::Remove(const std::string& actor_id) {
  if (!IsFileName(actor_id)) return;
  Shard& shard = ShardOf(actor_id);
  absl::MutexLock lock(&shard.mu);
  shard.fence.erase(actor_id);
  unlink(PathOf(actor_id).c_str());  // Most actors have none.
}

void ActorStateStore::KeepOnly(const std::set<std::string>& actor_ids) {
  std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(folder_.c_str()),
                                             &closedir);
  if (folder == nullptr) return;
  std::vector<std::string> strangers;
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_name[0] != '.' && !actor_ids.contains(entry->d_name)) {
      strangers.emplace_back(entry->d_name);
    }
  }
  for (const std::string& name : strangers) unlink(PathOf(name).c_str());
}

}  // namespace miniray
