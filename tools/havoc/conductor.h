// Carries a plan out: faults at their times, each undone when its time has
// come.

#ifndef MINIRAY_TOOLS_HAVOC_CONDUCTOR_H_
#define MINIRAY_TOOLS_HAVOC_CONDUCTOR_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tools/havoc/havoc_cluster.h"
#include "tools/havoc/network.h"
#include "tools/havoc/plan.h"
#include "tools/havoc/workload.h"

namespace miniray::havoc {

// For the main thread.
class Conductor {
 public:
  struct Options {
    std::string mark;  // Only processes with it are touched.
    std::function<void(const std::string&)> log;  // A line of the timeline.
    std::function<bool()> interrupted;
  };
  // All outlive it.
  Conductor(Options options, HavocCluster* cluster, Network* network,
            const Workload* workload);

  // Returns at the end of the plan, with everything healed and started again.
  // Errors: INTERNAL, a process ended that nobody had touched. CANCELLED,
  // interrupted. Those of HavocCluster.
  absl::Status Run(const std::vector<Fault>& plan, absl::Duration length);

  // For the time after Run as well. Starts a daemon again that gave up because
  // it found no head. Errors: INTERNAL, another process ended by itself.
  absl::Status CheckProcesses();

  // "12 x kill actor, ..."
  std::string Summary() const;

 private:
  struct Undo {
    absl::Time at;
    std::function<absl::Status()> run;
    std::string what;
  };

  absl::Status Begin(const Fault& fault);
  // Stops `pid` until the fault's end. False: somebody else has stopped it.
  bool Pause(const std::string& what, pid_t pid, const Fault& fault);
  absl::Status UndoDue(absl::Time now);
  absl::Status UndoAll();
  void Later(const std::string& key, const Fault& fault, std::string what,
             std::function<absl::Status()> run);
  void Log(const std::string& text) const;

  const Options options_;
  HavocCluster* const cluster_;
  Network* const network_;
  const Workload* const workload_;
  absl::Time start_;
  // What is disturbed now ("head", "node 1", "actor 3", "link 0-2"), and how it
  // ends.
  std::map<std::string, Undo> undos_;
  std::map<std::string, int> done_;
  int skipped_ = 0;
};

}  // namespace miniray::havoc

#endif  // MINIRAY_TOOLS_HAVOC_CONDUCTOR_H_
