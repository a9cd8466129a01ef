// The environment that actors are started with, for what they are measured
// against.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_ACTOR_ENVIRONMENT_H_
#define MINIRAY_TOOLS_BENCH_PEERS_ACTOR_ENVIRONMENT_H_

#include "runtime/actor/actor_malloc.h"
#include "tools/bench/child.h"

namespace miniray::bench {

// One compute thread, and malloc's settings.
inline Child::Environment ActorEnvironment() {
  return {{"OMP_NUM_THREADS", "1"}, {kMallocVariable, kActorMallocSettings}};
}

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_ACTOR_ENVIRONMENT_H_
