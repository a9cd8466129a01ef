// Joins ranks that have unequally many batches, so that none waits for an
// all-reduce that another, which ran out of data, never makes: who has no batch
// left takes part without one ("shadows") until all are done.
//
//   const train::AllReduceMax max = [&](int64_t n) { return group.Max(n); };
//   MR_RETURN_IF_ERROR(train::ForEachJoined(
//       loader, max,
//       [&](Batch& batch) { ...; loss.backward(); optimizer.step(); },
//       [&] {
//         const absl::Status shadowed = model.ShadowBackward();
//         if (!shadowed.ok()) throw train::CollectiveError(shadowed);
//         optimizer.step();
//       }));
//
// Needed with Tail::kUneven only. One all-reduce of one number an epoch: how
// many batches a rank has is known before it begins. No LibTorch here, and
// nothing of the process group but the function.
//
// Model: Join of PyTorch's DistributedDataParallel
// (torch.distributed.algorithms .join), which asks before every step instead.

#ifndef MINIRAY_TRAIN_DATA_JOIN_H_
#define MINIRAY_TRAIN_DATA_JOIN_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {

// Returns the largest of the numbers with which all ranks call it: a collective
// call. Its errors are passed on.
using AllReduceMax = std::function<absl::StatusOr<int64_t>(int64_t)>;

// How many steps of an epoch a rank does with data of its own, and how many
// the rank with the most does.
struct JoinPlan {
  int64_t own_steps = 0;
  int64_t max_steps = 0;

  int64_t shadow_steps() const { return max_steps - own_steps; }
};

// Agrees on the plan with all other ranks, each of which calls this once.
//
// Errors: INVALID_ARGUMENT, own_steps < 0 or no function. INTERNAL, the
// function returns less than own_steps: it is no maximum over all ranks. Those
// of `all_reduce_max`.
absl::StatusOr<JoinPlan> PlanJoin(int64_t own_steps,
                                  const AllReduceMax& all_reduce_max);

// Calls step(batch) for each batch of `loader`, a PreparedDataLoader or a
// BatchStream, and then shadow() once for each step that another rank does
// more. Each rank calls this; step and shadow make the same collective calls.
// What they or the loader throw passes through.
//
// Errors: those of PlanJoin, before the first step.
template <class Loader, class Step, class Shadow>
absl::Status ForEachJoined(Loader& loader, const AllReduceMax& all_reduce_max,
                           Step step, Shadow shadow) {
  MR_ASSIGN_OR_RETURN(const JoinPlan plan,
                      PlanJoin(loader.steps(), all_reduce_max));
  for (auto& batch : loader) step(batch);
  for (int64_t i = 0; i < plan.shadow_steps(); ++i) shadow();
  return absl::OkStatus();
}

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_JOIN_H_
