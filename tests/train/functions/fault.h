// Faults in train functions, where and how a file says that the setting
// "fault_file" names: "RANK EPOCH WHERE HOW", for the rank at that epoch. The
// rank removes the file; with " always" behind, it does not.
//
// HOW is "throw", "kill", "stop" (SIGSTOP), "spin" (does nothing, for ever),
// "wait" (the same, until the group is told to stop), "leave" (as if it were
// done).

#ifndef MINIRAY_TESTS_TRAIN_FUNCTIONS_FAULT_H_
#define MINIRAY_TESTS_TRAIN_FUNCTIONS_FAULT_H_

#include <string>
#include <thread>

#include "train/functions/context.h"

namespace miniray::train {

// Fails if the file says so of this place. Returns whether the function shall
// leave.
bool MaybeFail(Context& ctx, int epoch, const std::string& where);

// "RANK EPOCH barrier kill": the rank is killed once it waits in Report; the
// others come to it only then. The thread, if there is one, is to be joined
// after Report.
std::thread MaybeDieInBarrier(Context& ctx, int epoch);

}  // namespace miniray::train

#endif  // MINIRAY_TESTS_TRAIN_FUNCTIONS_FAULT_H_
