// What actors whose class has SaveState have saved, one file each.

#ifndef MINIRAY_RUNTIME_HEAD_ACTOR_STATE_STORE_H_
#define MINIRAY_RUNTIME_HEAD_ACTOR_STATE_STORE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace miniray {

// A process of an actor that was given up must not overwrite what its successor
// builds on: once a start of the actor has loaded the state, earlier ones can
// save no more. A file is replaced by renaming: it survives the head being
// killed at any time; a power loss may cost what was saved in the last seconds.
//
// Thread-safe.
class ActorStateStore {
 public:
  // OK if this process (`incarnation` counts the starts) is the present one.
  using Check = std::function<absl::Status(const std::string& actor_id,
                                           int32_t incarnation)>;

  // Keeps the files in `folder`, made when the first is saved.
  ActorStateStore(std::string folder, int64_t max_state_bytes, Check check)
      : folder_(std::move(folder)),
        max_state_bytes_(max_state_bytes),
        check_(std::move(check)) {}

  // Errors: FAILED_PRECONDITION, not the present process. RESOURCE_EXHAUSTED,
  // too large, or the disk is full. INVALID_ARGUMENT, not an actor id.
  absl::Status Save(const std::string& actor_id, int32_t incarnation,
                    absl::string_view state);
  // Errors: NOT_FOUND, nothing was saved. FAILED_PRECONDITION, as above.
  absl::StatusOr<std::string> Load(const std::string& actor_id,
                                   int32_t incarnation);
  void Remove(const std::string& actor_id);
  // Removes what belongs to other actors, and what a killed head left half
  // written.
  void KeepOnly(const std::set<std::string>& actor_ids);

 private:
  struct Shard {
    absl::Mutex mu;
    // By actor: the latest start that has loaded.
    std::map<std::string, int32_t> fence;
  };

  Shard& ShardOf(const std::string& actor_id);
  // REQUIRES: shard.mu is held.
  absl::Status Admit(const Shard& shard, const std::string& actor_id,
                     int32_t incarnation) const;
  std::string PathOf(const std::string& actor_id) const;

  const std::string folder_;
  const int64_t max_state_bytes_;
  const Check check_;
  std::array<Shard, 16> shards_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_ACTOR_STATE_STORE_H_
