// Removes old logs of processes that have ended, so that a node's disk does not
// fill up with them.

#ifndef MINIRAY_RUNTIME_WORKER_LOG_JANITOR_H_
#define MINIRAY_RUNTIME_WORKER_LOG_JANITOR_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "runtime/base/steady_time.h"

namespace miniray {

// Has a thread of its own.
class LogJanitor {
 public:
  struct Options {
    std::string actor_folder;  // CLASS-ACTORID.INCARNATION.log and rotated ones
    std::string job_folder;    // JOB.log and rotated ones
    // Of all that is there; the oldest logs go first.
    int64_t max_bytes = int64_t{10} << 30;
    int max_logs = 10000;
    // Logs of one actor that was restarted again and again.
    int max_incarnations = 10;
    absl::Duration period = absl::Seconds(10);
  };

  // in_use: paths of the logs of processes that live, which all stay. It is
  // called by the janitor's thread.
  LogJanitor(Options options, std::function<std::set<std::string>()> in_use);
  ~LogJanitor();

  // One look. Does what it can.
  static void Clean(const Options& options,
                    const std::set<std::string>& in_use);

 private:
  const Options options_;
  const std::function<std::set<std::string>()> in_use_;
  SteadyNotification stopping_;
  std::thread thread_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_LOG_JANITOR_H_
