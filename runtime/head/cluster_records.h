// What ClusterState keeps of each node, actor and job.

#ifndef MINIRAY_RUNTIME_HEAD_CLUSTER_RECORDS_H_
#define MINIRAY_RUNTIME_HEAD_CLUSTER_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "proto/head.pb.h"
#include "runtime/head/demand.h"
#include "runtime/head/resources.h"

namespace miniray {

// The ways to one worker daemon and to one driver. Send queues the message and
// returns at once; it is called without ClusterState's lock, by one thread at a
// time, in the order of what happened.
class NodeLink {
 public:
  virtual ~NodeLink() = default;
  virtual void Send(v1::NodeCommand command) = 0;
};

class DriverLink {
 public:
  virtual ~DriverLink() = default;
  virtual void Send(v1::DriverEvent event) = 0;
  // What a process printed; dropped (and counted) where the driver does not
  // read what it is sent.
  virtual void Output(v1::ProcessOutput output) = 0;
  // Ends the stream once all was sent.
  virtual void End(const absl::Status& status) = 0;
};

// `key` is that of the record's row in the database; 0: it has none yet.

struct NodeRecord {
  int64_t key = 0;
  v1::NodeInfo info;
  ResourceSet total;
  ResourceSet available;
  std::shared_ptr<NodeLink> link;
  absl::Time link_end;  // Where it has none: since when.
  absl::Time next_warning = absl::InfinitePast();
  absl::Time lease_end;
  std::optional<v1::ClockReading> clock;  // As it last told.
  v1::NodeUsage usage;                    // The same; without the memory.
  // Of the actors that hold resources here: they have a process, or had one
  // whose end is not known yet.
  std::set<std::string> actors;
  // A placement group waits for its room: nothing else starts here.
  bool held = false;
  // It was told to stop: nothing starts here any more.
  bool stopping = false;
  std::string metrics_address;  // As it said last; not kept on disk.
};

struct ActorRecord {
  int64_t key = 0;
  // Without the constructor's arguments once it is dead.
  std::shared_ptr<const v1::ActorSpec> spec;
  v1::ActorInfo info;
  ResourceSet request;
  int32_t incarnation = 0;
  bool holds_resources = false;  // Of info.node_id.
  ResourceSet taken;             // What it holds: the request, on devices.
  // Why this incarnation was ordered to stop; empty: it was not.
  std::string stop_reason;
  int bundle = -1;  // Of its placement group, while it holds resources.
  // While it waits for resources; else null.
  DemandClass* waits_in = nullptr;
  int64_t queue_position = 0;
  absl::Time queued_at;
  // Restarts in a row of processes that lived for less than a minute, and
  // before when the next is not tried; InfinitePast: it does not wait for that.
  int quick_restarts = 0;
  absl::Time up_since = absl::InfinitePast();  // By the clock for periods.
  absl::Time restart_at = absl::InfinitePast();
  bool stored = false;                  // Its creation is on disk.
  std::string log_node_id;              // Where its last process ran, or runs.
  std::optional<v1::ActorUsage> usage;  // As last heard, of any incarnation.
};

struct BundleRecord {
  ResourceSet total;  // On devices of the node, while it is reserved.
  ResourceSet available;
  std::string node_id;  // Where it is reserved; empty: nowhere.
};

struct GroupRecord {
  int64_t key = 0;
  v1::PlacementGroupSpec spec;
  v1::PlacementGroupInfo info;  // Without bundles.
  std::vector<BundleRecord> bundles;
  std::set<std::string> actors;  // Living ones.
  std::string lost_node;       // "lost the node ... and ", while it waits anew.
  int64_t queue_position = 0;  // Keeps it when it has to wait anew.
  absl::Time waits_since = absl::InfiniteFuture();
  absl::Time infeasible_since = absl::InfiniteFuture();
  bool stored = false;  // Its creation is on disk.
};

struct JobRecord {
  int64_t key = 0;
  v1::JobInfo info;
  std::string session_id;
  const void* session = nullptr;  // The driver's stream, told by its address.
  std::shared_ptr<DriverLink> link;
  absl::Time grace_end = absl::InfiniteFuture();
  bool wants_output = false;  // Its driver does.
  // The driver said goodbye, and still gets what its actors print at their end;
  // no longer than this.
  absl::Time leaving_end = absl::InfiniteFuture();

  // Of submitted jobs; null: of others.
  std::shared_ptr<const v1::JobSpec> spec;
  ResourceSet request;
  // Of info.node_id: the process was ordered to start there, and its end is not
  // known yet.
  bool holds_resources = false;
  ResourceSet taken;        // As ActorRecord's.
  std::string stop_reason;  // Why it was ordered to stop; empty: it was not.
  bool stored = false;      // Its submission is on disk.
  absl::Time infeasible_since = absl::InfiniteFuture();
};

inline std::string NodeName(const v1::NodeInfo& node) {
  return absl::StrCat(node.node_id(), " (", node.hostname(), ", ",
                      node.address(), ")");
}

// Why something ended that may have been told to.
inline std::string WithReason(const std::string& stop_reason,
                              const std::string& cause) {
  return stop_reason.empty() ? cause : absl::StrCat(stop_reason, "; ", cause);
}

inline bool IsLive(const v1::ActorInfo& info) {
  return info.state() != v1::ACTOR_STATE_DEAD;
}

inline bool HasEnded(const v1::JobInfo& info) {
  return info.state() == v1::JOB_STATE_SUCCEEDED ||
         info.state() == v1::JOB_STATE_FAILED ||
         info.state() == v1::JOB_STATE_STOPPED;
}

// Names are in every answer about what has them.
inline constexpr size_t kMaxNameBytes = 256;

// Error: INVALID_ARGUMENT. what: that has the name, e.g. "an actor's name".
inline absl::Status CheckNameLength(absl::string_view what,
                                    const std::string& name) {
  if (name.size() <= kMaxNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, " has at most ", kMaxNameBytes, " bytes, not ", name.size()));
}

// True if a node runs it, or was ordered to.
inline bool HasProcess(const v1::ActorInfo& info) {
  return info.state() == v1::ACTOR_STATE_STARTING ||
         info.state() == v1::ACTOR_STATE_ALIVE ||
         (info.state() == v1::ACTOR_STATE_RESTARTING &&
          !info.node_id().empty());
}

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_CLUSTER_RECORDS_H_
