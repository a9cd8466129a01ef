// A head and worker daemons inside the test's process, on port 0, with actor
// processes that are real: the test's own executable hosts them. The test needs
// a main of its own that calls miniray::Init first: see TEST_CLUSTER_MAIN.

#ifndef MINIRAY_TESTS_RUNTIME_TEST_CLUSTER_H_
#define MINIRAY_TESTS_RUNTIME_TEST_CLUSTER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "runtime/head/head_server.h"
#include "runtime/worker/worker_daemon.h"

namespace miniray {

class TestCluster {
 public:
  struct Options {
    std::vector<double> node_cpus = {4};
    HeadServer::Options head;  // host, port and state_dir are filled in.
    std::function<void(WorkerDaemon::Options*)> configure_node;
  };
  TestCluster() : TestCluster(Options{}) {}
  explicit TestCluster(Options options);
  ~TestCluster();

  const std::string& address() const { return address_; }
  HeadServer& head() { return *head_; }
  WorkerDaemon& daemon(size_t i) { return *daemons_[i]; }
  void StopDaemon(size_t i) { daemons_[i]->Shutdown(); }
  // The session folder of a daemon.
  std::string NodeFolder(size_t i) const;

  // A driver's connection.
  Cluster Connect();

  // The head's record of an actor. REQUIRES: it exists.
  v1::ActorInfo Info(const AnyActorHandle& actor);

 private:
  std::string folder_;
  std::string address_;
  std::unique_ptr<HeadServer> head_;
  std::vector<std::unique_ptr<WorkerDaemon>> daemons_;
};

// True if the process exists and is no zombie. Once it is not, its sockets and
// files are closed.
bool ProcessLives(int64_t pid);

// Waits until `condition` holds, at most `timeout`; returns whether it does.
bool Eventually(const std::function<bool()>& condition,
                absl::Duration timeout = absl::Seconds(10));

}  // namespace miniray

#define TEST_CLUSTER_MAIN()                                             \
  int main(int argc, char** argv) {                                     \
    miniray::Init(argc, argv);                                          \
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kAbort); \
    testing::InitGoogleTest(&argc, argv);                               \
    return RUN_ALL_TESTS();                                             \
  }

#endif  // MINIRAY_TESTS_RUNTIME_TEST_CLUSTER_H_
