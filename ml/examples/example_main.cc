#include "ml/examples/example_main.h"

#include "absl/flags/reflection.h"
#include "ml/cli/output_file.h"

namespace miniray::ml {

int ExampleMain(int argc, char** argv, ProgramHelp help,
                absl::FunctionRef<absl::Status()> run) {
  help.other_flags.emplace_back(
      "address=HOST:PORT",
      "head of the cluster; without it, and without MINIRAY_ADDRESS, one is "
      "started for the run");
  if (const auto code = ParseCommandLine(help, argc, argv)) return *code;
  absl::Status status;
  if (const auto* const save = absl::FindCommandLineFlag("save")) {
    status = CheckOutputFile("--save", save->CurrentValue());
  }
  if (status.ok()) status = run();
  return Finish(help, status);
}

}  // namespace miniray::ml
