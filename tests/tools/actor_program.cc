// A driver for tests: one actor that runs, one that waits for CPUs that no node
// has. Prints "ready" once the first answers; ends when its stdin does.

#include <unistd.h>

#include <iostream>

#include "absl/time/time.h"
#include "runtime/api/miniray.h"

namespace {

class Sleeper {
 public:
  int64_t Pid() { return getpid(); }
};
MINIRAY_ACTOR(Sleeper, Constructor<>, &Sleeper::Pid);

absl::Status Run() {
  MR_ASSIGN_OR_RETURN(const miniray::Cluster cluster,
                      miniray::Cluster::Connect());
  MR_ASSIGN_OR_RETURN(
      const auto running,
      cluster.CreateActor<Sleeper>({.name = "runs", .max_restarts = 3}));
  MR_RETURN_IF_ERROR(
      running.Call<&Sleeper::Pid>().Get(absl::Seconds(30)).status());
  MR_ASSIGN_OR_RETURN(const auto waiting,
                      cluster.CreateActor<Sleeper>(
                          {.name = "waits", .resources = {.cpu = 1000}}));
  std::cout << "ready" << std::endl;
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::cerr << status << std::endl;
  return 1;
}
