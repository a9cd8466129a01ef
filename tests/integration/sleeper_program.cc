// A driver for tests: makes --actors=N actors, prints "ready PID..." and then
// does what --then says: "wait" (hangs in a call), "exit" (exit(0) with the
// cluster still open), "abort". With --detached=NAME the first actor is
// detached, has that name, and takes calls. With --find=NAME it makes none: it
// finds that actor, prints "found PID" and ends.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "runtime/api/miniray.h"

namespace {

class Sleeper {
 public:
  int64_t Pid() { return getpid(); }
  // A process of its own, which has to go with it.
  int64_t StartChild() {
    const pid_t pid = fork();
    if (pid == 0) {
      while (true) pause();
    }
    return pid;
  }
  void Sleep() {
    while (true) pause();
  }
};
MINIRAY_ACTOR(Sleeper, Constructor<>, &Sleeper::Pid, &Sleeper::StartChild,
              &Sleeper::Sleep);

// The exit code.
int Find(const miniray::Cluster& cluster, const std::string& name) {
  const auto actor = cluster.GetActor<Sleeper>(name);
  const auto pid = actor.ok() ? actor->Call<&Sleeper::Pid>().Get()
                              : absl::StatusOr<int64_t>(actor.status());
  if (!pid.ok()) {
    fprintf(stderr, "%s\n", pid.status().ToString().c_str());
    return 1;
  }
  printf("found %ld\n", static_cast<long>(*pid));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  int num_actors = 2;
  std::string then = "wait", detached, find;
  for (int i = 1; i < argc; ++i) {
    absl::string_view arg = argv[i];
    if (absl::ConsumePrefix(&arg, "--then=")) then = std::string(arg);
    if (absl::ConsumePrefix(&arg, "--detached=")) detached = std::string(arg);
    if (absl::ConsumePrefix(&arg, "--find=")) find = std::string(arg);
    if (absl::ConsumePrefix(&arg, "--actors=") &&
        !absl::SimpleAtoi(arg, &num_actors)) {
      return 2;
    }
  }
  auto cluster = miniray::Cluster::Connect();
  if (!cluster.ok()) {
    fprintf(stderr, "%s\n", cluster.status().ToString().c_str());
    return 1;
  }
  if (!find.empty()) return Find(*cluster, find);
  std::vector<miniray::ActorHandle<Sleeper>> actors;
  std::string line = "ready";
  for (int i = 0; i < num_actors; ++i) {
    miniray::ActorOptions options = {.resources = {.cpu = 0.1}};
    if (i == 0 && !detached.empty()) {
      options.name = detached;
      options.detached = true;
    }
    auto actor = cluster->CreateActor<Sleeper>(options);
    if (!actor.ok()) return 1;
    for (auto pid : {actor->Call<&Sleeper::Pid>().Get(),
                     actor->Call<&Sleeper::StartChild>().Get()}) {
      if (!pid.ok()) {
        fprintf(stderr, "%s\n", pid.status().ToString().c_str());
        return 1;
      }
      line += " " + std::to_string(*pid);
    }
    if (!options.detached) actors.push_back(*actor);
  }
  std::vector<miniray::ObjectRef<void>> sleeping;
  for (auto& actor : actors) {
    sleeping.push_back(actor.Call<&Sleeper::Sleep>());
  }
  printf("%s\n", line.c_str());
  fflush(stdout);
  if (then == "exit") exit(0);
  if (then == "abort") abort();
  const absl::Status status = miniray::GetAll(sleeping);
  printf("ended: %s\n", status.ToString().c_str());
  fflush(stdout);
  return status.ok() ? 0 : 1;
}
