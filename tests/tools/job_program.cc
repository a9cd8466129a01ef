// A driver for tests of jobs and logs; its first argument says what it does.

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"

namespace {

class Talker {
 public:
  int64_t Pid() { return getpid(); }
  void Say(const std::string& text) { std::cout << text << std::endl; }
  // Without an end of line, and without a flush.
  void Mumble(const std::string& text) { std::fputs(text.c_str(), stdout); }
  void Count(int64_t lines) {
    for (int64_t i = 0; i < lines; ++i) std::printf("line %ld\n", i);
    std::fflush(stdout);
  }
  // Whether its process has an actor class of that name.
  bool Knows(const std::string& class_name) {
    return miniray::internal::ActorRegistry::Get().Find(class_name).ok();
  }
  void SayAndDie(const std::string& text) {
    std::cout << text << std::endl;
    _exit(3);
  }
};
MINIRAY_ACTOR(Talker, Constructor<>, &Talker::Pid, &Talker::Say,
              &Talker::Mumble, &Talker::Count, &Talker::Knows,
              &Talker::SayAndDie);

constexpr absl::Duration kTimeout = absl::Seconds(40);

// Does `what` with the text `text` in an actor called `name`.
absl::Status Run(const std::string& what, const std::string& text,
                 const std::string& name) {
  MR_ASSIGN_OR_RETURN(miniray::Cluster cluster, miniray::Cluster::Connect());
  if (what == "nothing") return absl::OkStatus();
  if (what == "job_id") {
    std::cout << "job " << cluster.job_id() << std::endl;
    return absl::OkStatus();
  }
  if (what == "group") {
    // `name` with room for two, and one that nobody can ever hold.
    MR_ASSIGN_OR_RETURN(
        const auto group,
        cluster.CreatePlacementGroup(
            {.bundles = {{.cpu = 0.5}, {.cpu = 0.5}}, .name = name}));
    MR_RETURN_IF_ERROR(group.WaitReady(kTimeout));
    MR_RETURN_IF_ERROR(
        cluster
            .CreatePlacementGroup(
                {.strategy = miniray::PlacementStrategy::kStrictSpread,
                 .bundles = {{.cpu = 1000}},
                 .name = "too large"})
            .status());
    std::cout << "ready" << std::endl;
    char end;
    while (read(STDIN_FILENO, &end, 1) > 0) {
    }
    return absl::OkStatus();
  }
  MR_ASSIGN_OR_RETURN(
      const auto talker,
      cluster.CreateActor<Talker>({.name = name,
                                   .resources = {.cpu = 0},
                                   .max_restarts = what == "again" ? 1 : 0}));
  MR_ASSIGN_OR_RETURN(const int64_t pid,
                      talker.Call<&Talker::Pid>().Get(kTimeout));
  if (what == "say") {
    MR_RETURN_IF_ERROR(talker.Call<&Talker::Say>(text).Get(kTimeout));
  } else if (what == "mumble") {
    MR_RETURN_IF_ERROR(talker.Call<&Talker::Mumble>(text).Get(kTimeout));
  } else if (what == "count") {
    MR_RETURN_IF_ERROR(
        talker.Call<&Talker::Count>(std::stoll(text)).Get(kTimeout));
  } else if (what == "knows") {
    MR_ASSIGN_OR_RETURN(const bool knows,
                        talker.Call<&Talker::Knows>(text).Get(kTimeout));
    std::cout << "the actor " << (knows ? "knows" : "does not know") << " it"
              << std::endl;
  } else if (what == "die") {
    (void)talker.Call<&Talker::SayAndDie>(text).Get(kTimeout);
  } else if (what == "wait") {
    MR_RETURN_IF_ERROR(talker.Call<&Talker::Say>(text).Get(kTimeout));
    std::cout << "ready" << std::endl;
    char byte;
    if (isatty(STDIN_FILENO) == 0) {
      // Until stdin ends; a submitted job's has ended already.
      while (read(STDIN_FILENO, &byte, 1) > 0) {
      }
    }
    if (std::getenv("MINIRAY_JOB_ID") != nullptr) {
      while (true) pause();
    }
  } else if (what == "again") {
    // Once more in the actor's next process.
    MR_RETURN_IF_ERROR(talker.Call<&Talker::Say>(text).Get(kTimeout));
    std::cout << "ready" << std::endl;
    while (talker.Call<&Talker::Pid>().Get(kTimeout).value_or(pid) == pid) {
      absl::SleepFor(absl::Milliseconds(20));
    }
    MR_RETURN_IF_ERROR(
        talker.Call<&Talker::Say>(text + " again").Get(kTimeout));
  } else {
    return absl::InvalidArgumentError(absl::StrCat("what is '", what, "'?"));
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  const absl::Status status =
      Run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "",
          argc > 3 ? argv[3] : "");
  if (status.ok()) return 0;
  std::cerr << status << std::endl;
  return 1;
}
