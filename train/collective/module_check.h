// Finds out whether the modules of all ranks are alike. A part of
// DistributedModule.

#ifndef MINIRAY_TRAIN_COLLECTIVE_MODULE_CHECK_H_
#define MINIRAY_TRAIN_COLLECTIVE_MODULE_CHECK_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "train/collective/process_group.h"

namespace miniray::train::internal {

// What must be the same in all ranks: names ("parameter 'fc.weight'") with what
// they are ("float32 [10, 4]"), in order.
using Description = std::vector<std::pair<std::string, std::string>>;

// A collective call, in which all ranks get the same answer.
//
// problem: what this rank has found out by itself; OK if nothing.
// Errors: the problem of the lowest rank that has one, with its rank.
// INVALID_ARGUMENT, the lowest rank whose description is not rank 0's, and the
// first difference. Those of the collectives.
absl::Status CheckAlike(ProcessGroup& group, const absl::Status& problem,
                        const Description& description);

// How `mine` differs from `first`, rank 0's; empty if it does not.
std::string Difference(const Description& first, const Description& mine);

}  // namespace miniray::train::internal

#endif  // MINIRAY_TRAIN_COLLECTIVE_MODULE_CHECK_H_
