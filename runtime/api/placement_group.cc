#include "runtime/api/placement_group.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "proto/head.pb.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

// What is asked for with no time is a record, not a wait.
constexpr absl::Duration kLeastWait = absl::Milliseconds(1);
constexpr absl::Duration kMostWait = absl::Hours(1);

absl::Status NotReady(const std::string& id, absl::Duration timeout,
                      absl::string_view why) {
  return absl::DeadlineExceededError(
      absl::StrCat("the placement group ", id, " is not ready after ",
                   absl::FormatDuration(timeout), ": ", why));
}

}  // namespace

absl::Status PlacementGroup::WaitReady(absl::Duration timeout) const {
  const absl::Time deadline = absl::Now() + timeout;
  v1::GetPlacementGroupRequest request;
  request.set_placement_group_id(id_);
  while (true) {
    request.set_wait_ms(absl::ToInt64Milliseconds(
        std::clamp(deadline - absl::Now(), kLeastWait, kMostWait)));
    const absl::StatusOr<v1::PlacementGroupInfo> found =
        client_->GetPlacementGroup(request);
    if (absl::IsDeadlineExceeded(found.status())) {
      return NotReady(id_, timeout, found.status().message());
    }
    MR_RETURN_IF_ERROR(found.status());
    const v1::PlacementGroupInfo& info = *found;
    if (info.state() == v1::PLACEMENT_GROUP_STATE_CREATED) {
      return absl::OkStatus();
    }
    if (info.state() == v1::PLACEMENT_GROUP_STATE_REMOVED) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the placement group ", id_, " has ended: ", info.cause()));
    }
    if (absl::Now() >= deadline) {
      return NotReady(id_, timeout, absl::StrCat("it ", info.cause()));
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
