// Watches the memory of this machine, and has the actor process killed that
// would free most before the kernel kills any: with what it started in its
// process group, and of memory that others have too, its part.

#ifndef MINIRAY_RUNTIME_WORKER_MEMORY_MONITOR_H_
#define MINIRAY_RUNTIME_WORKER_MEMORY_MONITOR_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/steady_time.h"

namespace miniray {

struct MemoryReading {
  int64_t used_bytes = 0;
  int64_t total_bytes = 0;
};

// The machine's memory, or that of the control group (v2) that this process is
// in, whichever is nearer to its end. Memory that the kernel takes back when
// it needs it (file caches) is not used. Errors: those of the system.
absl::StatusOr<MemoryReading> ReadMemory();

class MemoryMonitor {
 public:
  struct Options {
    // Of the total; 0: nothing is killed.
    double limit = 0.95;
    absl::Duration period = absl::Milliseconds(250);
    absl::Duration report_period = absl::Seconds(2);
    std::function<absl::StatusOr<MemoryReading>()> read = &ReadMemory;
  };
  struct Victim {
    std::string key;
    pid_t group = 0;
  };
  // Called from the monitor's thread.
  struct Callbacks {
    // Who may be killed.
    std::function<std::vector<Victim>()> list;
    std::function<void(const Victim& victim, const std::string& cause)> kill;
    std::function<void(const MemoryReading& reading)> report;
  };

  MemoryMonitor(Options options, Callbacks callbacks);
  ~MemoryMonitor();

 private:
  void Loop();
  void KillLargest(const MemoryReading& reading);

  const Options options_;
  const Callbacks callbacks_;
  SteadyNotification stopping_;
  std::thread thread_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_MEMORY_MONITOR_H_
