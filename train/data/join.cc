#include "train/data/join.h"

#include "absl/strings/str_cat.h"

namespace miniray::train {

absl::StatusOr<JoinPlan> PlanJoin(int64_t own_steps,
                                  const AllReduceMax& all_reduce_max) {
  if (own_steps < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a rank cannot do ", own_steps, " steps"));
  }
  if (all_reduce_max == nullptr) {
    return absl::InvalidArgumentError(
        "joining ranks needs a function that returns the largest of all ranks' "
        "numbers; got none");
  }
  MR_ASSIGN_OR_RETURN(const int64_t max_steps, all_reduce_max(own_steps));
  if (max_steps < own_steps) {
    return absl::InternalError(
        absl::StrCat("the largest number of steps over all ranks came back as ",
                     max_steps, ", but this rank alone does ", own_steps,
                     ": the function given is no maximum over all ranks"));
  }
  return JoinPlan{.own_steps = own_steps, .max_steps = max_steps};
}

}  // namespace miniray::train
