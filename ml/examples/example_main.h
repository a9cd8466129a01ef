// What examples that fit a page leave out: the rest of main.

#ifndef MINIRAY_ML_EXAMPLES_EXAMPLE_MAIN_H_
#define MINIRAY_ML_EXAMPLES_EXAMPLE_MAIN_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "ml/cli/flags.h"

namespace miniray::ml {

// Parses main's arguments, looks whether the file of --save, if there is such a
// flag, can be written, runs the example, and prints an error as one line.
// Returns the exit code. Call it after miniray::Init.
int ExampleMain(int argc, char** argv, const ProgramHelp& help,
                absl::FunctionRef<absl::Status()> run);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_EXAMPLES_EXAMPLE_MAIN_H_
