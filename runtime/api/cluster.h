// Cluster: a program's connection to a Mini-Ray cluster.

#ifndef MINIRAY_RUNTIME_API_CLUSTER_H_
#define MINIRAY_RUNTIME_API_CLUSTER_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/api/actor_handle.h"
#include "runtime/api/placement_group.h"

namespace miniray {

// Must be the first statement of main. In a process that a worker daemon
// started, it hosts the actor and never returns; elsewhere it returns at once.
// Takes --address=HOST:PORT (or "--address HOST:PORT") and --tls_dir=DIR out of
// the arguments: what Cluster::Connect uses by default. And --plugin=FILE.so,
// which may be repeated: shared objects that are loaded at once, and into the
// program's actors too (also $MINIRAY_PLUGINS, with colons between the paths);
// one that cannot be loaded ends the program with exit code 2.
void Init(int& argc, char** argv);

// The --address that Init took; empty if none was given.
const std::string& GivenAddress();

struct ClusterOptions {
  // HOST:PORT of the head. Empty: --address as given to Init, else
  // $MINIRAY_ADDRESS; if none is set, an embedded cluster of real processes on
  // this machine is started for this program and ends with it.
  std::string address;
  // Secret of the cluster. Empty: $MINIRAY_TOKEN, else the token file that
  // `miniray start` left in the runtime folder on this machine.
  std::string token;
  // Folder with ca.crt, node.crt and node.key (see `miniray make-certs`), for a
  // cluster that speaks TLS. Empty: --tls_dir as given to Init, else
  // $MINIRAY_TLS_DIR, else what `miniray start` left in the runtime folder on
  // this machine.
  std::string tls_dir;
  // Names the job that this driver opens; empty: one is made up. ALREADY_EXISTS
  // if a running job has it.
  // Submitted jobs: always that of the job ($MINIRAY_JOB_ID).
  std::string job_id;
  // What the job's actors print appears on this driver's stderr, each line
  // behind "(CLASS pid=N node=HOST) ". Off also by $MINIRAY_LOG_TO_DRIVER=0.
  bool log_to_driver = true;
  absl::Duration connect_timeout = absl::Seconds(10);
  // How long an actor that the head holds for alive, or the head, may be out of
  // reach before calls that wait for it fail. Zero: as the cluster's head says
  // (miniray start --head --reconnect_timeout, 60 s).
  absl::Duration reconnect_timeout;

  // Embedded cluster only.
  int embedded_nodes = 1;        // Worker daemons.
  double embedded_num_cpus = 0;  // Of each; 0: the machine's.
  int embedded_num_gpus = 0;     // Of each: the machine's first ones.
};

// What an actor asks for of its node, and holds until its process has ended.
// Fractions count to 1/10000. All of it decides where the actor is placed, and
// no more, but for the threads (ActorOptions::num_threads) and GPUs.
struct ResourceOptions {
  double cpu = 1;
  // Up to 1: a share of one device, which other shares may fill; beyond: so
  // many devices, a whole number. The process sees these devices alone
  // (CUDA_VISIBLE_DEVICES; ActorContext::gpu_ids), and none if it asks for none
  // of a node that offers GPUs (start --num_gpus). What of a device's memory
  // and time a share is, its users must agree on themselves.
  double gpu = 0;
  // Reserved for placement; nobody keeps the actor from using more. Who is
  // killed when a node runs out of memory is up to what they use (start
  // --memory_limit), not to this.
  double memory_bytes = 0;
  // By names of your own (start --resources).
  std::map<std::string, double> custom;
};

struct PlacementGroupOptions {
  PlacementStrategy strategy = PlacementStrategy::kPack;
  // What to reserve; each bundle is on one node. 1 to 1,000.
  std::vector<ResourceOptions> bundles;
  std::string name;       // For people; need not be unique.
  bool detached = false;  // Outlives its driver; end it with Remove.
};

// Methods that run beside the others, in threads of their own. The class must
// bear that.
struct ConcurrencyGroup {
  std::string name;
  int max_concurrency = 1;
  // MethodName<&T::Method>(); a call may also name the group (CallOptions).
  std::vector<std::string> methods;
};

// When the state of an actor whose class has SaveState goes to the head, from
// where its next process gets it.
class SaveStatePolicy {
 public:
  // Before the reply of a call that may have changed it is sent (a method that
  // is not const): nothing that was acknowledged is ever lost. Calls that wait
  // share one save.
  static SaveStatePolicy BeforeReplies() { return SaveStatePolicy(0); }
  // At most once in `interval`; what happened since the last time is lost.
  static SaveStatePolicy Every(absl::Duration interval) {
    return SaveStatePolicy(
        std::max(int64_t{1}, absl::ToInt64Milliseconds(interval)));
  }
  // When the actor calls ActorContext::SaveState.
  static SaveStatePolicy Manual() { return SaveStatePolicy(-1); }

  int64_t milliseconds() const { return milliseconds_; }  // As in ActorSpec.

 private:
  explicit SaveStatePolicy(int64_t milliseconds)
      : milliseconds_(milliseconds) {}
  int64_t milliseconds_;
};

struct ActorOptions {
  // Unique in its namespace while the actor lives; empty: no name.
  std::string name;
  std::string actor_namespace;
  ResourceOptions resources;
  // How often a dead process is started again; -1: for ever.
  int max_restarts = 0;
  // Detached actors outlive their driver; end them with Kill. What one creates
  // and puts (actors, placement groups, values) ends with it, and not with its
  // driver.
  bool detached = false;
  // Compute threads (OMP_NUM_THREADS, LibTorch's pool); 0: the CPUs asked for,
  // rounded down, at least 1.
  int num_threads = 0;
  std::map<std::string, std::string> env;
  // Not empty: on each node, the job's actors of this program with the same
  // shared_process live in one process, for classes that are light. Each still
  // has a thread of its own; a crash takes them all. Not together with `env`;
  // the first of them says with how many threads they compute. Those with
  // other GPUs live in another one.
  std::string shared_process;
  // Default of CallOptions::max_retries, wherever the handle travels.
  int max_retries = 0;
  // Calls of one process to the actor that have no reply yet; beyond, calls
  // fail with RESOURCE_EXHAUSTED. 0: 100,000.
  int max_pending_calls = 0;
  // The same for the bytes of their arguments, which are kept until the reply
  // in case they must be sent again; results of other calls count once they are
  // there. One call may have more. 0: 4 GiB.
  int64_t max_pending_bytes = 0;
  // How many methods outside any group run at once. With one, they run in the
  // order of the calls.
  int max_concurrency = 1;
  std::vector<ConcurrencyGroup> concurrency_groups;
  // If a living actor of this class has the name: that one instead of an error.
  bool get_if_exists = false;
  // Only on this node (ActorContext::node_id, NodeInfo.node_id). soft_affinity:
  // elsewhere if that one is dead or could never hold the actor.
  std::string node_id;
  bool soft_affinity = false;
  // Only on nodes that have all of these (miniray start --labels).
  std::map<std::string, std::string> node_labels;
  // Takes its resources from a bundle of this group (a PlacementGroup or its
  // id): the one of that index, from 0, or any that has room.
  PlacementGroupId placement_group;
  std::optional<int> bundle_index;
  // Only for classes with SaveState, which run one method at a time.
  SaveStatePolicy save_state = SaveStatePolicy::BeforeReplies();
};

// A value; copies share the connection, which ends with the last of them or
// with Shutdown. When a driver's connection ends, the actors that it created
// are stopped unless detached. Thread-safe.
class Cluster {
 public:
  // Errors: UNAVAILABLE, nobody answers at the address. UNAUTHENTICATED, the
  // token is wrong. UNIMPLEMENTED, the head is of another version.
  // INVALID_ARGUMENT, not an address. FAILED_PRECONDITION, the embedded cluster
  // needs the `miniray` program and cannot find it. Those of reading tls_dir.
  static absl::StatusOr<Cluster> Connect(ClusterOptions options = {});

  // Creates an actor of class T, constructed with `args`, and returns its
  // handle at once; the actor starts when a node has the resources. Calls made
  // meanwhile wait. If it cannot start, the calls fail with the reason (see
  // also WaitReady).
  //
  // Errors: ALREADY_EXISTS, a living actor has the name. INVALID_ARGUMENT,
  // resources below zero. UNAVAILABLE, the head does not answer.
  template <class T, class... Args>
  absl::StatusOr<ActorHandle<T>> CreateActor(const ActorOptions& options,
                                             Args&&... args) const {
    static_assert(internal::IsActor<T>,
                  "T is no actor class here: its MINIRAY_ACTOR must stand "
                  "before this line");
    using Definition = decltype(MinirayActor(static_cast<const T*>(nullptr)));
    static_assert(
        std::tuple_size_v<typename Definition::ConstructorArguments> ==
            sizeof...(Args),
        "wrong number of arguments for the constructor in MINIRAY_ACTOR");
    const typename Definition::ConstructorArguments values(
        std::forward<Args>(args)...);
    MR_ASSIGN_OR_RETURN(internal::ArgumentList encoded,
                        internal::EncodeArguments(values));
    MR_ASSIGN_OR_RETURN(internal::ActorIdentity identity,
                        Create(options, internal::DemangledName(typeid(T)),
                               encoded, internal::SavesState<T>));
    return ActorHandle<T>(client(), std::move(identity));
  }

  // Finds a living actor by name. Errors: NOT_FOUND. INVALID_ARGUMENT, it is of
  // another class.
  template <class T>
  absl::StatusOr<ActorHandle<T>> GetActor(
      absl::string_view name, absl::string_view actor_namespace = "") const {
    MR_ASSIGN_OR_RETURN(
        internal::ActorIdentity identity,
        Find(name, actor_namespace, internal::DemangledName(typeid(T))));
    return ActorHandle<T>(client(), std::move(identity));
  }

  // Reserves room for several actors, all or nothing; returns at once (see
  // PlacementGroup::WaitReady). Errors: INVALID_ARGUMENT, no bundles, or one
  // that asks for nothing or less. UNAVAILABLE, the head does not answer.
  absl::StatusOr<PlacementGroup> CreatePlacementGroup(
      const PlacementGroupOptions& options) const;

  // Puts a value into the object store of this machine's node (of another one
  // if there is none) and returns a reference to pass to actors: however many
  // of a node's actors use it, it is sent to that node once. Blocks for the
  // upload; an error is Get's. See ObjectRef for how long the value lives.
  //
  // Errors: RESOURCE_EXHAUSTED, the store is full. UNAVAILABLE, no node.
  template <class T>
  ObjectRef<std::decay_t<T>> Put(const T& value) const {
    return ObjectRef<std::decay_t<T>>(
        PutEncoded(EncodeValue<std::decay_t<T>>(value)));
  }

  // Nodes, actors and jobs as the head knows them. Its type is in
  // proto/head.pb.h.
  absl::StatusOr<v1::GetClusterStateResponse> GetState() const;

  // Leaves the cluster (and ends it if it is embedded). Idempotent.
  void Shutdown();

  const std::string& address() const;  // HOST:PORT of the head
  // In a detached actor: its own id, under which it creates and puts.
  const std::string& job_id() const;
  bool embedded() const;

  std::shared_ptr<internal::Client> client() const;

  // For the runtime itself.
  struct State;
  explicit Cluster(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<internal::CallState> PutEncoded(
      absl::StatusOr<absl::Cord> value) const;
  absl::StatusOr<internal::ActorIdentity> Create(
      const ActorOptions& options, const std::string& class_name,
      const internal::ArgumentList& args, bool saves_state) const;
  absl::StatusOr<internal::ActorIdentity> Find(
      absl::string_view name, absl::string_view actor_namespace,
      const std::string& class_name) const;

  std::shared_ptr<State> state_;
};

// Where code runs inside an actor: about the actor, and the way to others.
class ActorContext {
 public:
  // The actor whose code runs in this thread; in a thread that the actor made
  // itself, the process's actor if it has only one. Null outside an actor
  // process.
  static const ActorContext* Current();

  const std::string& actor_id() const { return spec_.actor_id(); }
  const std::string& name() const { return spec_.name(); }
  const std::string& node_id() const { return node_id_; }
  int num_restarts() const { return incarnation_; }
  // The GPUs that the actor may use, by the names that they have on its node:
  // what CUDA_VISIBLE_DEVICES of its process says, unless the actor's own `env`
  // says otherwise. CUDA and LibTorch number them anew: gpu_ids()[i] is
  // "cuda:i". Of a fraction of a GPU: the one device. The same after a restart
  // of the head; a restarted actor may get others.
  const std::vector<std::string>& gpu_ids() const { return gpu_ids_; }
  // The actor's own connection, to create actors and find them by name.
  const Cluster& cluster() const { return cluster_; }

  // --- Only in a thread that runs a method of the actor.

  // Nobody waits for the call that runs in this thread: the caller has called
  // Cancel for it, its CallOptions::timeout is over, or the actor is ending.
  bool cancelled() const;

  // Sends the actor's state to the head now. Errors: FAILED_PRECONDITION, the
  // class has no SaveState, or another process of this actor has taken over.
  // UNAVAILABLE, the head does not answer. What SaveState returns.
  absl::Status SaveState() const;

  // Ends the actor, for good, once the running method has returned and its
  // result is sent. Other calls fail with UNAVAILABLE.
  void ExitActor() const;

  // For the runtime itself.
  ActorContext(v1::ActorSpec spec, std::string node_id, int incarnation,
               std::vector<std::string> gpu_ids, Cluster cluster)
      : spec_(std::move(spec)),
        node_id_(std::move(node_id)),
        incarnation_(incarnation),
        gpu_ids_(std::move(gpu_ids)),
        cluster_(std::move(cluster)) {}
  // In each thread of the actor.
  static void SetCurrent(const ActorContext* context);
  // What Current returns in other threads; null: nothing.
  static void SetDefault(const ActorContext* context);

 private:
  v1::ActorSpec spec_;
  std::string node_id_;
  int incarnation_;
  std::vector<std::string> gpu_ids_;
  Cluster cluster_;
};

// ActorContext::ExitActor of the actor whose method runs in this thread; has no
// effect elsewhere.
void ExitActor();

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_API_CLUSTER_H_
