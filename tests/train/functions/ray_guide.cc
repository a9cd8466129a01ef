// The last block of "Train functions: Ray Train, block by block" in
// train/README.md: with those before it, a program.

#include "tests/train/functions/ray_guide.h"

// README begins.
// ray_guide [WORKERS]: how many; 0: in this process.
int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  const int num_workers = argc > 1 ? std::atoi(argv[1]) : 2;
  const absl::StatusOr<train::Result> result =
      FitPoints({.num_workers = num_workers});
  if (!result.ok()) {
    std::cerr << result.status() << "\n";
    return 1;
  }
  for (const auto& [name, value] : result->metrics()) {
    std::cout << name << " " << value << "\n";
  }
}
// README ends.
