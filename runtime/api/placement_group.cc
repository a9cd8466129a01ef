#include "runtime/api/placement_group.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

// Of one request; the head may be another one by the next.
constexpr absl::Duration kMaxWait = absl::Seconds(10);

}  // namespace

absl::Status PlacementGroup::WaitReady(absl::Duration timeout) const {
  const absl::Time deadline = absl::Now() + timeout;
  v1::GetPlacementGroupRequest request;
  request.set_placement_group_id(id_);
  while (true) {
    request.set_wait_ms(absl::ToInt64Milliseconds(
        std::clamp(deadline - absl::Now(), absl::ZeroDuration(), kMaxWait)));
    MR_ASSIGN_OR_RETURN(const v1::PlacementGroupInfo info,
                        client_->GetPlacementGroup(request));
    if (info.state() == v1::PLACEMENT_GROUP_STATE_CREATED) {
      return absl::OkStatus();
    }
    if (info.state() == v1::PLACEMENT_GROUP_STATE_REMOVED) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the placement group ", id_, " has ended: ", info.cause()));
    }
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the placement group ", id_, " is not ready after ",
                       absl::FormatDuration(timeout), ": it ", info.cause()));
    }
    request.set_min_version(info.version() + 1);
  }
}

absl::Status PlacementGroup::Remove() const {
  const absl::Status status = client_->RemovePlacementGroup(id_);
  // Ended long ago.
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<v1::PlacementGroupInfo> PlacementGroup::GetInfo() const {
  v1::GetPlacementGroupRequest request;
  request.set_placement_group_id(id_);
  return client_->GetPlacementGroup(request);
}

}  // namespace miniray
