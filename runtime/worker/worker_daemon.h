// The worker daemon: offers this machine's resources to a head, starts actor
// processes on its orders, watches them and tells the head how they end.

#ifndef MINIRAY_RUNTIME_WORKER_WORKER_DAEMON_H_
#define MINIRAY_RUNTIME_WORKER_WORKER_DAEMON_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "runtime/objects/object_store.h"
#include "runtime/worker/memory_monitor.h"

namespace miniray {

// Thread-safe.
class WorkerDaemon {
 public:
  struct Options {
    std::string head_address;  // HOST:PORT
    // Of the cluster. May be empty only where actors listen on loopback.
    std::string token;
    v1::Resources resources;                    // "CPU" etc.
    std::map<std::string, std::string> labels;  // For placement.
    // IP address that actors listen on and are called at. Empty: the address
    // from which this machine reaches the head.
    std::string node_ip;
    // Folder for the package cache and the actors' output (logs/); created if
    // missing.
    std::string session_dir;
    absl::Duration connect_timeout = absl::Seconds(10);
    // Asked several times a second while the head is dialled; may be null.
    std::function<bool()> cancelled;
    // Between SIGTERM and SIGKILL when actors are stopped, and drivers of jobs:
    // one may have a model to save.
    absl::Duration stop_grace = absl::Seconds(1);
    absl::Duration job_stop_grace = absl::Seconds(5);
    // How long the head may take to accept this node, once there is a
    // connection, before it is dialled anew.
    absl::Duration answer_timeout = absl::Seconds(20);
    // Of one package, from the head.
    absl::Duration fetch_timeout = absl::Minutes(10);
    // How long what a process has printed is read after its end, where another
    // process holds its output open.
    absl::Duration drain_timeout = absl::Seconds(1);
    // Without a word of the head, what runs here is ended after it; zero: after
    // three leases.
    absl::Duration fence_after;
    // The same where the head's machine refuses the connection: the head is
    // dead, and may be started again.
    absl::Duration headless_timeout = absl::Hours(1);
    // Log of a process: the size of one file, and how many are kept.
    int64_t log_max_bytes = 32 << 20;
    int log_files = 5;
    // Of all logs together; the oldest of processes that have ended leave.
    int64_t log_total_bytes = int64_t{10} << 30;
    // Packages that are not in use leave beyond it.
    int64_t package_cache_bytes = int64_t{10} << 30;
    // What may be killed for, and when.
    MemoryMonitor::Options memory;
    // Fork actors from a process that has loaded their program.
    bool use_templates = true;
    // Of each actor process, in MB: what it may lend to others on the machine;
    // -1: the default of runtime/shm.
    int64_t shared_memory_mb = -1;
    // In memory, of values put into the node's object store; 0: 30 % of the
    // machine's, or of the control group's where that has a limit.
    int64_t object_store_bytes = 0;
    // Where the others go; empty: a folder of the session.
    std::string object_spill_dir;
    // See ObjectStore::Options::check_period. The same on all nodes.
    absl::Duration object_check_period = absl::Seconds(15);
    // Where the node's address serves /metrics for Prometheus, with the same
    // token and certificates as all else; 0: a port that is free, -1: nowhere.
    // Prometheus hears of it from the head.
    int metrics_port = -1;
    // Nothing else in this process has children: all that it inherits are
    // reaped.
    bool owns_process = false;
  };

  // Connects and registers; returns once the head has accepted the node.
  // Errors: UNAVAILABLE, nobody answers there within connect_timeout, or
  // metrics_port is in use (the message names it).
  // CANCELLED, `cancelled` said so. UNAUTHENTICATED, the token is wrong.
  // UNIMPLEMENTED, the head is of another version. INVALID_ARGUMENT, not an
  // address; or GPUs that cannot be had: $CUDA_VISIBLE_DEVICES names fewer than
  // `resources` has, or one of them twice. FAILED_PRECONDITION, no token, and
  // an address that is not loopback. Call it before the process starts threads
  // that fork.
  static absl::StatusOr<std::unique_ptr<WorkerDaemon>> Start(Options options);

  virtual ~WorkerDaemon() = default;

  // Changes when the head gives the node up and it joins as a new one.
  virtual std::string node_id() const = 0;

  virtual ObjectStore::Stats object_stats() const = 0;

  // HOST:PORT of /metrics; empty: it is off.
  virtual std::string metrics_address() const = 0;

  // Stops all actors (SIGTERM, grace, SIGKILL, whole process groups), tells the
  // head and returns when no process is left. Idempotent.
  virtual void Shutdown() = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_WORKER_DAEMON_H_
