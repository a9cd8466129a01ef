// When the state of an actor whose class has SaveState goes to the head.

#ifndef MINIRAY_RUNTIME_ACTOR_STATE_SAVER_H_
#define MINIRAY_RUNTIME_ACTOR_STATE_SAVER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/time/time.h"
#include "runtime/actor/registry.h"

namespace miniray {
namespace internal {

// Not thread-safe: used by the thread that runs the actor's methods.
class StateSaver {
 public:
  // `interval_ms` as ActorSpec.save_state_ms. `send` blocks until the head has
  // the state. Errors of `send`: FAILED_PRECONDITION, another process of this
  // actor has taken over.
  StateSaver(const ActorClass* actor_class, std::shared_ptr<void> object,
             int64_t interval_ms, std::function<absl::Status(absl::Cord)> send);

  // A call that may have changed the state has run.
  void OnChange() { dirty_ = true; }

  // Replies of such calls wait for Save.
  bool before_replies() const { return interval_ms_ == 0; }
  bool dirty() const { return dirty_; }

  // When Save is due of itself; infinite if it is not.
  absl::Time due() const;

  // Sends the state unless it is what was sent last. Errors: of SaveState
  // itself, and of `send`.
  absl::Status Save();

  // A Save failed because another process of this actor has taken over.
  bool superseded() const { return superseded_; }

 private:
  absl::StatusOr<absl::Cord> Serialize() const;

  const ActorClass* const class_;
  const std::shared_ptr<void> object_;
  const int64_t interval_ms_;
  const std::function<absl::Status(absl::Cord)> send_;
  bool dirty_ = false;
  bool superseded_ = false;
  absl::Time last_try_ = absl::InfinitePast();
  std::optional<std::string> last_sent_;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_STATE_SAVER_H_
