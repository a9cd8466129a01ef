// The cluster of a chaos run: a head and worker daemons as `miniray start
// --block` runs them, each on its machine.

#ifndef MINIRAY_TOOLS_HAVOC_HAVOC_CLUSTER_H_
#define MINIRAY_TOOLS_HAVOC_HAVOC_CLUSTER_H_

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tools/havoc/network.h"

namespace miniray::havoc {

// Not thread-safe; for the main thread.
class HavocCluster {
 public:
  struct Options {
    std::string miniray;  // path of the program
    std::string folder;   // for logs and state; exists
    std::string mark;
    std::string token;
    int nodes = 3;
    double cpus = 6;  // of each node
    absl::Duration lease = absl::Seconds(3);
  };
  // network: outlives it.
  HavocCluster(Options options, Network* network);
  // Kills what still runs.
  ~HavocCluster();

  // Starts the head, again after it was killed: on the same port, with the same
  // state. Returns once it listens. Errors: UNAVAILABLE, it ended or is not
  // ready in time, with the end of its log.
  absl::Status StartHead();
  absl::Status StartNode(int node);

  // SIGKILL; returns once it is gone.
  void KillHead();
  void KillNode(int node);

  bool HeadRuns();
  bool NodeRuns(int node);
  pid_t head_pid() const { return head_; }
  pid_t node_pid(int node) const { return nodes_[static_cast<size_t>(node)]; }
  int num_nodes() const { return options_.nodes; }

  const std::string& address() const { return address_; }

  // Ends daemons, then the head, as SIGTERM asks them to. Errors: INTERNAL, one
  // did not end in time, or not with 0.
  absl::Status Stop();

  std::string HeadLog() const { return options_.folder + "/head.log"; }
  std::string NodeLog(int node) const;

 private:
  std::map<std::string, std::string> Environment(
      const std::string& machine) const;

  const Options options_;
  Network* const network_;
  std::string address_;
  pid_t head_ = 0;
  std::vector<pid_t> nodes_;
};

}  // namespace miniray::havoc

#endif  // MINIRAY_TOOLS_HAVOC_HAVOC_CLUSTER_H_
