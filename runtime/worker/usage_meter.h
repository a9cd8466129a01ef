// What CPUs and actors' processes use, from /proc.

#ifndef MINIRAY_RUNTIME_WORKER_USAGE_METER_H_
#define MINIRAY_RUNTIME_WORKER_USAGE_METER_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/head.pb.h"

namespace miniray {

// Of an actor's process, as it told last.
struct ProcessCalls {
  int64_t done = 0;
  int64_t waiting = 0;
  int64_t running = 0;
};

// An actor with its process; several actors may share one.
struct ActorProcess {
  std::string actor_id;
  int32_t incarnation = 0;
  pid_t pid = 0;
  ProcessCalls calls;
};

// Not thread-safe.
class UsageMeter {
 public:
  struct Options {
    std::string proc = "/proc";  // Tests pass a folder.
    // Time since the machine's start, as /proc counts it.
    std::function<absl::Duration()> uptime = &Uptime;
    // Actors in one measurement. With more, the next one goes on where this one
    // ended: to look at a process takes some 50 us.
    size_t max_actors = 200;
  };

  UsageMeter() : UsageMeter(Options()) {}
  explicit UsageMeter(Options options);

  // Sets all of *stats but the machine's memory: what was used since the last
  // time, of a process at its first time since its start. What cannot be read,
  // as of a process that has ended, is left out.
  void Measure(std::vector<ActorProcess> actors, v1::NodeStats* stats);

 private:
  struct CpuTime {
    double busy = 0;  // In ticks, of all CPUs together.
    double total = 0;
    int cpus = 0;
  };
  struct ProcessTime {
    int64_t start_ticks = 0;  // Tells it from a later one with its pid.
    absl::Duration busy;
    absl::Duration at;
  };

  static absl::Duration Uptime();

  std::optional<CpuTime> ReadCpuTime() const;
  std::optional<ProcessTime> ReadProcessTime(pid_t pid) const;
  int64_t ReadMemory(pid_t pid) const;
  void MeasureMachine(v1::NodeStats* stats);

  const Options options_;
  const double ticks_per_second_;
  std::optional<CpuTime> last_machine_;
  std::map<pid_t, ProcessTime> last_;
  std::string last_actor_;  // Of the last measurement, if it had not all.
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_USAGE_METER_H_
