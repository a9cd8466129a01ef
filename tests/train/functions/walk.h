// A train function small enough to follow by hand, which fails where and how a
// file says: each rank's model is one number x, which an epoch moves half of
// the way to the rank's target.

#ifndef MINIRAY_TESTS_TRAIN_FUNCTIONS_WALK_H_
#define MINIRAY_TESTS_TRAIN_FUNCTIONS_WALK_H_

#include <string>

#include "train/functions/train_function.h"

namespace miniray::train {

// config:
//   epochs
//   fault_file   see fault.h; WHERE is "step", "save" (its checkpoint is made,
//     and not reported) or "barrier"
//   epoch_seconds  how long an epoch takes; 0
//   save_every   epochs from one checkpoint to the next; 1
//   padding      bytes that a checkpoint has besides; 0
//   folder       if not empty: "begun" is made there once it runs
//
// Reports x, epoch, rank, pid, generation.
void Walk(Context& ctx);

// x of a rank after so many epochs.
double WalkedTo(int rank, int epochs);

}  // namespace miniray::train

#endif  // MINIRAY_TESTS_TRAIN_FUNCTIONS_WALK_H_
