// The environment that actors are started with, for what they are measured
// against.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_ACTOR_ENVIRONMENT_H_
#define MINIRAY_TOOLS_BENCH_PEERS_ACTOR_ENVIRONMENT_H_

#include "tools/bench/child.h"

namespace miniray::bench {

// One compute thread, and malloc's settings.
inline Child::Environment ActorEnvironment() {
  return {
      {"OMP_NUM_THREADS", "1"},
      {"GLIBC_TUNABLES", "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1"}};
}

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_ACTOR_ENVIRONMENT_H_
