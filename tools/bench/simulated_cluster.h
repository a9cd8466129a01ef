// Worker daemons and a driver that exist only as connections to a real head:
// as many nodes and actors as one machine could not hold.

#ifndef MINIRAY_TOOLS_BENCH_SIMULATED_CLUSTER_H_
#define MINIRAY_TOOLS_BENCH_SIMULATED_CLUSTER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/head.grpc.pb.h"

namespace miniray::bench {

// How the daemons' leases last by default; what each daemon offers.
inline constexpr absl::Duration kSimulatedLease = absl::Seconds(10);
inline constexpr int kCpusPerDaemon = 64;

// What is waited for here lasts at most so long.
inline constexpr absl::Duration kSimulationPatience = absl::Minutes(2);

// Lets this process have as many connections as its user may.
void RaiseFileLimit();

// Daemons, a connection each, that answer an order to start or stop an actor at
// once. For one thread.
class SimulatedDaemons {
 public:
  // address: of the head. token: may be empty.
  SimulatedDaemons(const std::string& address, const std::string& token,
                   int count);
  // They leave.
  ~SimulatedDaemons();

  // Registers all; from then on each renews its lease as often as a real one.
  // Call it once. Errors: DEADLINE_EXCEEDED, not all are registered in time.
  absl::Status Attach();

  // By all, so far. From any thread.
  int64_t actors_started() const { return started_; }

 private:
  class Daemon;
  class LeaseThread;

  std::atomic<int64_t> started_ = 0;
  std::vector<std::unique_ptr<Daemon>> daemons_;
  std::unique_ptr<LeaseThread> leases_;
};

// Asks for actors of one CPU each, many at once, and for lists. For one thread.
class SimulatedDriver {
 public:
  // in_flight: creations without an answer.
  SimulatedDriver(const std::string& address, std::string token, int in_flight);

  // A package that nobody runs; before actors are created.
  absl::Status Upload();

  // Creates `count` actors; returns once all are acknowledged. Errors: of one
  // that was not.
  absl::Status Create(int count);
  absl::Status KillAll();

  // state: only actors in it; empty: all.
  absl::StatusOr<v1::GetClusterStateResponse> List(
      v1::Table table, const std::string& state = "");

  // Until no actor waits or starts. Asks for those alone: a list of all of them
  // would be a part of what is measured.
  absl::Status WaitUntilUp();
  // Until all resources are free.
  absl::Status WaitUntilIdle();

  // Errors: INTERNAL, another number of actors is ALIVE.
  absl::Status ExpectAlive(int count);

 private:
  void Enter() ABSL_LOCKS_EXCLUDED(mu_);
  void Leave(const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Drain() ABSL_LOCKS_EXCLUDED(mu_);

  const std::unique_ptr<v1::Head::Stub> stub_;
  const std::string token_;
  const int max_in_flight_;
  std::string package_id_;
  std::vector<std::string> actors_;
  int64_t next_ = 0;
  absl::Mutex mu_;
  int in_flight_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_SIMULATED_CLUSTER_H_
