#include "runtime/actor/state_saver.h"

#include <exception>
#include <utility>

#include "absl/time/clock.h"
#include "runtime/actor/host.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace internal {

StateSaver::StateSaver(const ActorClass* actor_class,
                       std::shared_ptr<void> object, int64_t interval_ms,
                       std::function<absl::Status(absl::Cord)> send)
    : class_(actor_class),
      object_(std::move(object)),
      interval_ms_(interval_ms),
      send_(std::move(send)) {}

absl::Time StateSaver::due() const {
  if (!dirty_ || interval_ms_ <= 0) return absl::InfiniteFuture();
  return last_try_ + absl::Milliseconds(interval_ms_);
}

absl::Status StateSaver::Save() {
  last_try_ = absl::Now();
  absl::StatusOr<absl::Cord> serialized = Serialize();
  MR_RETURN_IF_ERROR(Annotate(serialized.status(), "SaveState"));
  const absl::Cord state = *std::move(serialized);
  if (!last_sent_.has_value() || state != *last_sent_) {
    // What the head has is not known if this fails.
    last_sent_.reset();
    const absl::Status status = send_(state);
    superseded_ = absl::IsFailedPrecondition(status);
    MR_RETURN_IF_ERROR(Annotate(status, "save the actor's state"));
    last_sent_ = std::string(state);
  }
  dirty_ = false;
  return absl::OkStatus();
}

absl::StatusOr<absl::Cord> StateSaver::Serialize() const {
  try {
    return class_->save(object_.get());
  } catch (const std::exception& error) {
    return FromException(error);
  } catch (...) {
    return absl::UnknownError("threw something that is no std::exception");
  }
}

}  // namespace internal
}  // namespace miniray
