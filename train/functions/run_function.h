// Runs a train function, whatever becomes of it.

#ifndef MINIRAY_TRAIN_FUNCTIONS_RUN_FUNCTION_H_
#define MINIRAY_TRAIN_FUNCTIONS_RUN_FUNCTION_H_

#include "train/functions/context.h"
#include "train/functions/messages.h"

namespace miniray::train {

// Calls the registered function of that name in this thread, and catches what
// it throws. An exception's outcome has its type and text.
RunOutcome RunTrainFunction(const std::string& name, Context& context);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_FUNCTIONS_RUN_FUNCTION_H_
