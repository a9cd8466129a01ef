// What code that runs inside an actor's method may ask of its actor; see
// ActorContext in runtime/api/cluster.h. All of it is about the calling thread.

#ifndef MINIRAY_RUNTIME_ACTOR_CURRENT_CALL_H_
#define MINIRAY_RUNTIME_ACTOR_CURRENT_CALL_H_

#include <string>

#include "absl/status/status.h"

namespace miniray {
namespace internal {

// The actor whose method runs in this thread, for the functions below.
class CurrentActor {
 public:
  virtual ~CurrentActor() = default;
  virtual absl::Status SaveState() = 0;
  virtual void Exit() = 0;
  virtual bool CallCancelled() = 0;

  // Null where no method of an actor runs.
  static CurrentActor* Get();
  static void Set(CurrentActor* actor);
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_CURRENT_CALL_H_
