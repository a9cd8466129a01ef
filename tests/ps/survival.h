// Servers that are killed at random, and what must come of it: the bits of a
// run in which nobody was.

#ifndef MINIRAY_TESTS_PS_SURVIVAL_H_
#define MINIRAY_TESTS_PS_SURVIVAL_H_

#include <cstdint>
#include <functional>
#include <random>
#include <string>

#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::ps {

// Kills so many times in so many rounds, wherever chance has it.
class Killer {
 public:
  Killer(TestCluster* nodes, int kills, int rounds, uint64_t seed)
      : nodes_(nodes), random_(seed), kills_left_(kills), rounds_(rounds) {}

  // Once a round: whether somebody is to die in it. After the last round, all
  // kills were.
  bool IsTime();

  uint64_t Random() { return random_(); }

  // Ends the actor's process with SIGKILL after a time of up to `within`, and
  // returns when the next one is up; else the test fails.
  void Kill(const AnyActorHandle& actor, absl::Duration within);

  int kills_left() const { return kills_left_; }

 private:
  TestCluster* const nodes_;
  std::mt19937_64 random_;
  int kills_left_;
  int rounds_;  // Those left.
};

// Runs `run` without a kill and with `kills`, and expects the same weights.
// run: returns the weights of a worker at the end, none if it failed.
void ExpectSurvives(
    int kills,
    const std::function<NamedTensors(const std::string& folder, int kills,
                                     uint64_t seed)>& run);

}  // namespace miniray::ps

#endif  // MINIRAY_TESTS_PS_SURVIVAL_H_
