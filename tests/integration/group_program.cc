// A driver for tests: reserves a placement group of two bundles on two nodes,
// starts an actor in each, lets each make a child, prints "ready" and the pids
// of all four, and hangs.

#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "runtime/api/miniray.h"

namespace {

class Member {
 public:
  int64_t Pid() { return getpid(); }
  // Returns the child's pid.
  absl::StatusOr<int64_t> MakeChild();
};
MINIRAY_ACTOR(Member, Constructor<>, &Member::Pid, &Member::MakeChild);

absl::StatusOr<int64_t> Member::MakeChild() {
  MR_ASSIGN_OR_RETURN(
      const miniray::ActorHandle<Member> child,
      miniray::ActorContext::Current()->cluster().CreateActor<Member>(
          {.resources = {.cpu = 0.5}}));
  return child.Call<&Member::Pid>().Get();
}

absl::Status Run() {
  MR_ASSIGN_OR_RETURN(miniray::Cluster cluster, miniray::Cluster::Connect());
  MR_ASSIGN_OR_RETURN(
      const miniray::PlacementGroup group,
      cluster.CreatePlacementGroup(
          {.strategy = miniray::PlacementStrategy::kStrictSpread,
           .bundles = {{.cpu = 1}, {.cpu = 1}}}));
  MR_RETURN_IF_ERROR(group.WaitReady(absl::Seconds(20)));
  std::vector<miniray::ActorHandle<Member>> members;
  std::string line = "ready";
  for (int i = 0; i < 2; ++i) {
    MR_ASSIGN_OR_RETURN(miniray::ActorHandle<Member> member,
                        cluster.CreateActor<Member>(
                            {.placement_group = group, .bundle_index = i}));
    MR_ASSIGN_OR_RETURN(const int64_t pid, member.Call<&Member::Pid>().Get());
    MR_ASSIGN_OR_RETURN(const int64_t child,
                        member.Call<&Member::MakeChild>().Get());
    line += " " + std::to_string(pid) + " " + std::to_string(child);
    members.push_back(std::move(member));
  }
  printf("%s\n", line.c_str());
  fflush(stdout);
  while (true) pause();
}

}  // namespace

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  fprintf(stderr, "%s\n", Run().ToString().c_str());
  return 1;
}
