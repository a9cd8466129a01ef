// What a chaos run does to a cluster, and when: all of it follows from a seed.

#ifndef MINIRAY_TOOLS_HAVOC_PLAN_H_
#define MINIRAY_TOOLS_HAVOC_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace miniray::havoc {

enum class FaultKind {
  kKillActor,      // SIGKILL
  kPauseActor,     // SIGSTOP, later SIGCONT
  kKillDaemon,     // SIGKILL; started again later
  kPauseDaemon,    // SIGSTOP, later SIGCONT
  kKillTemplate,   // SIGKILL of the process that actors are forked from
  kKillHead,       // SIGKILL; started again later
  kPauseHead,      // SIGSTOP, later SIGCONT
  kCutHeadNode,    // nothing passes, and nobody is told; healed later
  kCutDriverNode,  // the same between driver and node
};

inline constexpr FaultKind kFaultKinds[] = {
    FaultKind::kKillActor,     FaultKind::kPauseActor,
    FaultKind::kKillDaemon,    FaultKind::kPauseDaemon,
    FaultKind::kKillTemplate,  FaultKind::kKillHead,
    FaultKind::kPauseHead,     FaultKind::kCutHeadNode,
    FaultKind::kCutDriverNode,
};

struct Fault {
  absl::Duration at;  // since the start
  FaultKind kind = FaultKind::kKillActor;
  int target = 0;           // index of the actor or node
  absl::Duration duration;  // until it is undone; zero: it is not
};

struct PlanOptions {
  uint64_t seed = 1;
  absl::Duration length = absl::Seconds(60);
  // Silences are drawn around it: some shorter, some longer.
  absl::Duration lease = absl::Seconds(3);
  int actors = 8;
  int nodes = 3;
  bool can_cut = true;  // Otherwise daemons are paused instead.
};

// In the order of their times. The same options give the same plan, everywhere.
std::vector<Fault> MakePlan(const PlanOptions& options);

// "cut head from node 2 for 4.2s"
std::string Describe(const Fault& fault);

std::string Name(FaultKind kind);

}  // namespace miniray::havoc

#endif  // MINIRAY_TOOLS_HAVOC_PLAN_H_
