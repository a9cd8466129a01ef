// A cluster of real processes: a head and worker daemons as `miniray start
// --block` runs them, with the test's own process as the driver. Everything is
// gone with the ProcessTree.

#ifndef MINIRAY_TESTS_INTEGRATION_REAL_CLUSTER_H_
#define MINIRAY_TESTS_INTEGRATION_REAL_CLUSTER_H_

#include <memory>
#include <string>
#include <vector>

#include "runtime/api/miniray.h"
#include "tests/integration/process_tools.h"

namespace miniray {

// Not thread-safe. A failure to start ends the test's process.
class RealCluster {
 public:
  struct Options {
    int num_nodes = 1;
    double cpus = 4;  // of each node
    std::vector<std::string> head_flags;
    std::vector<std::string> node_flags;
    bool dashboard = false;
  };
  RealCluster() : RealCluster(Options{}) {}
  explicit RealCluster(Options options);

  const std::string& address() const { return address_; }
  ProcessTree& tree() { return tree_; }
  // Where the dashboard is: "http://127.0.0.1:PORT". REQUIRES: it has one
  // (Options::dashboard).
  std::string dashboard() const;

  // The test's process as a driver.
  Cluster Connect();

  ProcessTree::Child& head() { return *head_; }
  ProcessTree::Child& node(size_t i) { return *nodes_[i]; }

  // SIGKILL. REQUIRES: it runs.
  void KillHead();
  // On the same ports; returns once it answers.
  void StartHead();
  // With more flags than all nodes have.
  void AddNode(const std::vector<std::string>& flags = {});

  // The head's record of an actor. REQUIRES: it exists.
  static v1::ActorInfo Info(const Cluster& cluster,
                            const AnyActorHandle& actor);

 private:
  // What the head says behind these words.
  std::string ReadPast(const std::string& words);

  const Options options_;
  ProcessTree tree_;
  std::string address_;
  std::string port_ = "0";
  std::string dashboard_port_ = "0";
  std::unique_ptr<ProcessTree::Child> head_;
  std::vector<std::unique_ptr<ProcessTree::Child>> nodes_;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_INTEGRATION_REAL_CLUSTER_H_
