#include "tools/bench/peers/ray.h"

#include <cstdlib>

#include "runtime/base/status_macros.h"

namespace miniray::bench {
namespace {

constexpr char kScript[] = R"(
import os, statistics, sys, time

# Ray prints warnings; they are no answers.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import ray

ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False,
         configure_logging=False)

@ray.remote
class Actor:
    def __init__(self):
        self.value = 0
        self.block = None

    def add(self, n):
        self.value += n
        return self.value

    def get(self, size):
        import numpy
        if self.block is None or self.block.nbytes != size:
            self.block = numpy.ones(size, dtype=numpy.uint8)
        return self.block

actor = Actor.remote()
ray.get(actor.add.remote(1))

def round_trip(n):
    times = []
    for _ in range(n):
        start = time.perf_counter()
        ray.get(actor.add.remote(1))
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6

def flood(n):
    start = time.perf_counter()
    ray.get([actor.add.remote(1) for _ in range(n)])
    return n / (time.perf_counter() - start)

def result(n):
    start = time.perf_counter()
    block = ray.get(actor.get.remote(n))
    assert block.nbytes == n
    return time.perf_counter() - start

def first_call(_):
    start = time.perf_counter()
    other = Actor.remote()
    ray.get(other.add.remote(1))
    seconds = time.perf_counter() - start
    ray.kill(other)
    return seconds

for line in sys.stdin:
    name, _, argument = line.strip().partition(" ")
    work = {"round_trip": round_trip, "flood": flood, "result": result,
            "first_call": first_call}[name]
    print(work(int(argument or 0)), file=answers, flush=True)
ray.shutdown()
)";

bool HasRay() {
  return std::system("python3 -c 'import ray' >/dev/null 2>&1") == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> StartRay() {
  if (!HasRay()) return nullptr;
  return Child::StartProgram("ray", "python3", {"-c", kScript});
}

}  // namespace miniray::bench
