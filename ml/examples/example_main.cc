#include "ml/examples/example_main.h"

#include "absl/flags/reflection.h"
#include "ml/cli/output_file.h"

namespace miniray::ml {

int ExampleMain(int argc, char** argv, const ProgramHelp& help,
                absl::FunctionRef<absl::Status()> run) {
  if (const auto code = ParseCommandLine(help, argc, argv)) return *code;
  absl::Status status;
  if (const auto* const save = absl::FindCommandLineFlag("save")) {
    status = CheckOutputFile("--save", save->CurrentValue());
  }
  if (status.ok()) status = run();
  return Finish(help, status);
}

}  // namespace miniray::ml
