#include "runtime/api/cluster.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "proto/head.pb.h"
#include "runtime/actor/compute_threads.h"
#include "runtime/actor/current_call.h"
#include "runtime/actor/host.h"
#include "runtime/actor/plugins.h"
#include "runtime/actor/registry.h"
#include "runtime/actor/template.h"
#include "runtime/api/embedded_cluster.h"
#include "runtime/base/process_records.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/token.h"
#include "runtime/base/utf8.h"
#include "runtime/rpc/tls.h"

namespace miniray {
namespace {

// As given to Init.
std::string& AddressFlag() {
  static auto* const address = new std::string;
  return *address;
}

std::vector<std::string>& PluginFlags() {
  static auto* const paths = new std::vector<std::string>;
  return *paths;
}

std::string& TlsDirFlag() {
  static auto* const dir = new std::string;
  return *dir;
}

bool& Initialized() {
  static bool initialized = false;
  return initialized;
}

// How many threads one concurrency group may have.
constexpr int kMaxConcurrency = 1024;

constinit thread_local const ActorContext* thread_context = nullptr;
std::atomic<const ActorContext*> default_context = nullptr;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// If argv[*i] is "--name=value", or "--name" with a value behind it: returns
// the value and moves *i to its end.
std::optional<std::string> FlagValue(absl::string_view name, int argc,
                                     char** argv, int* i) {
  absl::string_view arg = argv[*i];
  if (!absl::ConsumePrefix(&arg, "--") || !absl::ConsumePrefix(&arg, name)) {
    return std::nullopt;
  }
  if (absl::ConsumePrefix(&arg, "=")) return std::string(arg);
  if (!arg.empty() || *i + 1 >= argc) return std::nullopt;
  return argv[++*i];
}

// Takes our flags out of the arguments.
void TakeFlags(int& argc, char** argv) {
  int kept = 0;
  for (int i = 0; i < argc; ++i) {
    const absl::string_view arg = argv[i];
    if (arg == "--") {  // What follows is not for us.
      for (; i < argc; ++i) argv[kept++] = argv[i];
      break;
    }
    if (i > 0) {
      if (auto address = FlagValue("address", argc, argv, &i)) {
        AddressFlag() = *std::move(address);
        continue;
      }
      if (auto plugin = FlagValue("plugin", argc, argv, &i)) {
        PluginFlags().push_back(*std::move(plugin));
        continue;
      }
      auto tls_dir = FlagValue("tls_dir", argc, argv, &i);
      if (!tls_dir) tls_dir = FlagValue("tls-dir", argc, argv, &i);
      if (tls_dir) {
        TlsDirFlag() = *std::move(tls_dir);
        continue;
      }
    }
    argv[kept++] = argv[i];
  }
  argc = kept;
  argv[argc] = nullptr;
}

// A message with other bytes would be refused as a whole, without a reason.
absl::Status CheckUtf8(absl::string_view what, absl::string_view text) {
  if (IsUtf8(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is not UTF-8: ", ToUtf8(text)));
}

absl::Status CheckResources(const ResourceOptions& options) {
  for (const auto& [name, quantity] : options.custom) {
    if (name.empty() || !IsUtf8(name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the custom resource '", ToUtf8(name), "' needs a name, in UTF-8"));
    }
    if (name == "CPU" || name == "GPU" || name == "memory") {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", name, "' is no custom resource: set cpu, gpu or memory_bytes"));
    }
  }
  return absl::OkStatus();
}

v1::Resources ToProto(const ResourceOptions& options) {
  v1::Resources resources;
  auto& quantity = *resources.mutable_quantity();
  quantity["CPU"] = options.cpu;
  quantity["GPU"] = options.gpu;
  quantity["memory"] = options.memory_bytes;
  for (const auto& [name, value] : options.custom) quantity[name] = value;
  return resources;
}

}  // namespace

namespace {

// Those of --plugin and of $MINIRAY_PLUGINS (paths with colons between them).
void LoadPlugins() {
  std::vector<std::string> paths = PluginFlags();
  for (absl::string_view path :
       absl::StrSplit(Variable("MINIRAY_PLUGINS"), ':', absl::SkipEmpty())) {
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) {
      paths.emplace_back(path);
    }
  }
  const absl::Status status = internal::LoadProgramPlugins(paths);
  if (status.ok()) return;
  fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  exit(2);
}

}  // namespace

struct Cluster::State {
  // In this order: the embedded processes end after the client has left.
  std::unique_ptr<internal::EmbeddedCluster> embedded;
  std::shared_ptr<internal::Client> client;
  absl::Mutex mu;

  ~State() { Shutdown(); }
  void Shutdown() {
    absl::MutexLock lock(&mu);
    if (client != nullptr) client->Shutdown();
    embedded.reset();
  }
};

namespace {

// What an actor creates and puts ends with its job; that of a detached one ends
// with the actor.
const std::string& LifetimeOf(const v1::ActorSpec& spec) {
  return spec.detached() ? spec.actor_id() : spec.job_id();
}

// The connection of the actors of this process that have this one's lifetime.
absl::StatusOr<Cluster> ClusterOfActors(const v1::HostActor& host) {
  static absl::Mutex mu(absl::kConstInit);
  static auto* const clusters = new std::map<std::string, Cluster>;
  // Of the first actor, if it is not alone: see ActorTable::OnExit.
  static auto* const owner = new std::string(
      absl::StrCat(host.spec().actor_id(), ".", host.incarnation()));
  absl::MutexLock lock(&mu);
  const std::string& lifetime = LifetimeOf(host.spec());
  auto cluster = clusters->find(lifetime);
  if (cluster == clusters->end()) {
    internal::Client::Options options;
    options.head_address = host.head_address();
    options.token = host.token();
    options.is_driver = false;
    options.job_id = lifetime;
    options.object_address = host.object_address();
    options.object_owner = *owner;
    options.periods = host.periods();
    MR_ASSIGN_OR_RETURN(auto client, internal::Client::Connect(options));
    auto state = std::make_shared<Cluster::State>();
    state->client = std::move(client);
    cluster = clusters->emplace(lifetime, Cluster(std::move(state))).first;
  }
  return cluster->second;
}

absl::StatusOr<internal::ActorHooks> PrepareActor(const v1::HostActor& host) {
  MR_ASSIGN_OR_RETURN(Cluster cluster, ClusterOfActors(host));
  const std::shared_ptr<internal::Client> client = cluster.client();
  auto context = std::make_shared<const ActorContext>(
      host.spec(), host.node_id(), host.incarnation(),
      std::vector<std::string>(host.gpu_ids().begin(), host.gpu_ids().end()),
      cluster);
  if (host.spec().shared_process().empty()) {
    ActorContext::SetDefault(new ActorContext(*context));
  }
  internal::ActorHooks hooks;
  hooks.enter_thread = [context, client] {
    internal::EnterComputeThread();
    internal::Client::SetOfThread(client);
    ActorContext::SetCurrent(context.get());
  };
  hooks.save_state = [client, id = host.spec().actor_id(),
                      incarnation = host.incarnation()](absl::Cord state) {
    return client->SaveActorState(id, incarnation, state);
  };
  hooks.load_state = [client, id = host.spec().actor_id(),
                      incarnation = host.incarnation()] {
    return client->LoadActorState(id, incarnation);
  };
  hooks.put = [client](const absl::Cord& value, std::shared_ptr<void>* hold) {
    return client->PutObject(value, hold);
  };
  return hooks;
}

absl::Status CheckConcurrency(const ActorOptions& options, bool saves_state) {
  auto check = [](absl::string_view what, int value) {
    if (value >= 1 && value <= kMaxConcurrency) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": max_concurrency = ", value, "; 1 to ", kMaxConcurrency));
  };
  MR_RETURN_IF_ERROR(check("the actor", options.max_concurrency));
  std::set<std::string> names, methods;
  for (const ConcurrencyGroup& group : options.concurrency_groups) {
    const std::string what =
        absl::StrCat("concurrency group '", ToUtf8(group.name), "'");
    MR_RETURN_IF_ERROR(check(what, group.max_concurrency));
    if (group.name.empty() || !IsUtf8(group.name) ||
        !names.insert(group.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          what, ": a group needs a name, in UTF-8, and one of its own"));
    }
    for (const std::string& method : group.methods) {
      if (!methods.insert(method).second) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, ": ", method, " is in two groups"));
      }
    }
  }
  if (saves_state && (options.max_concurrency > 1 || !names.empty())) {
    return absl::InvalidArgumentError(
        "the class has SaveState, so its methods must run one at a time: no "
        "max_concurrency above 1, no concurrency groups");
  }
  if (options.max_retries < -1 || options.max_pending_calls < 0 ||
      options.max_pending_bytes < 0) {
    return absl::InvalidArgumentError(
        "max_retries is at least -1 (for ever), max_pending_calls and "
        "max_pending_bytes at least 0 (the default)");
  }
  return absl::OkStatus();
}

absl::Status CheckGroupMethods(const ActorOptions& options,
                               const std::string& class_name) {
  if (options.concurrency_groups.empty()) return absl::OkStatus();
  const auto known = internal::ActorRegistry::Get().Find(class_name);
  if (!known.ok()) return absl::OkStatus();  // The node says it.
  for (const ConcurrencyGroup& group : options.concurrency_groups) {
    for (const std::string& method : group.methods) {
      if ((*known)->methods.contains(method)) continue;
      std::vector<std::string> names;
      for (const auto& [name, unused] : (*known)->methods) {
        names.push_back(name);
      }
      return absl::InvalidArgumentError(
          absl::StrCat("concurrency group '", group.name, "': ", class_name,
                       " has no method '", ToUtf8(method),
                       "'; it has: ", absl::StrJoin(names, ", ")));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void Init(int& argc, char** argv) {
  Initialized() = true;
  // Debian builds Abseil with its search for deadlocks on, which takes a fifth
  // of the time of small calls. Tests turn it on again.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  if (internal::IsTemplateProcess()) internal::ServeAsTemplate();
  if (!internal::IsActorProcess()) {
    TakeFlags(argc, argv);
    LoadPlugins();
    return;
  }
  internal::HostActorAndExit(&PrepareActor);
}

const std::string& GivenAddress() { return AddressFlag(); }

absl::StatusOr<Cluster> Cluster::Connect(ClusterOptions options) {
  if (!Initialized()) {
    return absl::FailedPreconditionError(
        "call miniray::Init(argc, argv) first thing in main: worker daemons "
        "start this same program to host its actors");
  }
  if (ActorContext::Current() != nullptr) {
    return ActorContext::Current()->cluster();
  }
  if (options.address.empty()) options.address = AddressFlag();
  if (options.address.empty()) options.address = Variable("MINIRAY_ADDRESS");
  auto state = std::make_shared<State>();
  if (options.address.empty()) {
    if (options.embedded_nodes < 1 || options.embedded_num_cpus < 0 ||
        options.embedded_num_gpus < 0) {
      return absl::InvalidArgumentError(
          "an embedded cluster needs at least one node and no negative CPUs or "
          "GPUs");
    }
    MR_ASSIGN_OR_RETURN(state->embedded,
                        internal::EmbeddedCluster::Start(
                            {.num_nodes = options.embedded_nodes,
                             .num_cpus = options.embedded_num_cpus,
                             .num_gpus = options.embedded_num_gpus}));
    options.address = state->embedded->address();
    options.token.clear();
    MR_RETURN_IF_ERROR(UseTls(""));
  } else {
    MR_RETURN_IF_ERROR(CheckTokenText(options.token, "ClusterOptions.token"));
    if (options.token.empty()) {
      options.token = Variable("MINIRAY_TOKEN");
      MR_RETURN_IF_ERROR(CheckTokenText(options.token, "$MINIRAY_TOKEN"));
    }
    if (options.token.empty()) {
      options.token = TokenFor(options.address).value_or("");
    }
    if (options.tls_dir.empty()) options.tls_dir = TlsDirFlag();
    if (options.tls_dir.empty()) options.tls_dir = Variable(kTlsDirVariable);
    if (options.tls_dir.empty()) {
      options.tls_dir = TlsDirFor(options.address).value_or("");
    }
    MR_RETURN_IF_ERROR(Annotate(UseTls(options.tls_dir), "TLS"));
  }
  internal::Client::Options client;
  client.head_address = options.address;
  client.token = options.token;
  // The cluster runs this driver: it knows the job by this id alone. An
  // embedded cluster of its own knows nothing of it.
  const std::string submitted = Variable("MINIRAY_JOB_ID");
  client.job_id = submitted.empty() || state->embedded != nullptr
                      ? options.job_id
                      : submitted;
  client.log_to_driver =
      options.log_to_driver && Variable("MINIRAY_LOG_TO_DRIVER") != "0";
  client.connect_timeout = options.connect_timeout;
  client.reconnect_timeout = options.reconnect_timeout;
  MR_ASSIGN_OR_RETURN(state->client, internal::Client::Connect(client));
  return Cluster(std::move(state));
}

absl::StatusOr<PlacementGroup> Cluster::CreatePlacementGroup(
    const PlacementGroupOptions& options) const {
  MR_RETURN_IF_ERROR(CheckUtf8("the placement group's name", options.name));
  v1::PlacementGroupSpec spec;
  spec.set_name(options.name);
  spec.set_detached(options.detached);
  switch (options.strategy) {
    case PlacementStrategy::kPack:
      spec.set_strategy(v1::PLACEMENT_STRATEGY_PACK);
      break;
    case PlacementStrategy::kSpread:
      spec.set_strategy(v1::PLACEMENT_STRATEGY_SPREAD);
      break;
    case PlacementStrategy::kStrictPack:
      spec.set_strategy(v1::PLACEMENT_STRATEGY_STRICT_PACK);
      break;
    case PlacementStrategy::kStrictSpread:
      spec.set_strategy(v1::PLACEMENT_STRATEGY_STRICT_SPREAD);
      break;
  }
  for (const ResourceOptions& bundle : options.bundles) {
    MR_RETURN_IF_ERROR(CheckResources(bundle));
    *spec.add_bundles() = ToProto(bundle);
  }
  MR_ASSIGN_OR_RETURN(const v1::PlacementGroupInfo info,
                      client()->CreatePlacementGroup(std::move(spec)));
  return PlacementGroup(client(), info.placement_group_id());
}

absl::StatusOr<internal::ActorIdentity> Cluster::Create(
    const ActorOptions& options, const std::string& class_name,
    const internal::ArgumentList& args, bool saves_state) const {
  MR_RETURN_IF_ERROR(CheckConcurrency(options, saves_state));
  MR_RETURN_IF_ERROR(CheckGroupMethods(options, class_name));
  MR_RETURN_IF_ERROR(CheckResources(options.resources));
  if (options.num_threads < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_threads = ", options.num_threads,
        "; at least 1, or 0 for the CPUs that the actor asks for"));
  }
  MR_RETURN_IF_ERROR(CheckUtf8("the actor's name", options.name));
  MR_RETURN_IF_ERROR(
      CheckUtf8("the actor's namespace", options.actor_namespace));
  MR_RETURN_IF_ERROR(CheckUtf8("node_id", options.node_id));
  MR_RETURN_IF_ERROR(
      CheckUtf8("placement_group", options.placement_group.value()));
  for (const auto& [name, value] : options.node_labels) {
    MR_RETURN_IF_ERROR(CheckUtf8("a name in node_labels", name));
    MR_RETURN_IF_ERROR(CheckUtf8("a value in node_labels", value));
  }
  v1::ActorSpec spec;
  spec.set_class_name(class_name);
  spec.set_name(options.name);
  spec.set_actor_namespace(options.actor_namespace);
  *spec.mutable_resources() = ToProto(options.resources);
  spec.set_get_if_exists(options.get_if_exists);
  spec.set_node_id(options.node_id);
  spec.set_soft_affinity(options.soft_affinity);
  spec.mutable_node_labels()->insert(options.node_labels.begin(),
                                     options.node_labels.end());
  spec.set_placement_group_id(options.placement_group.value());
  if (options.bundle_index.has_value()) {
    spec.set_bundle_index(*options.bundle_index);
  }
  spec.set_max_restarts(options.max_restarts);
  spec.set_detached(options.detached);
  spec.set_num_threads(options.num_threads);
  spec.set_max_retries(options.max_retries);
  spec.set_max_pending_calls(options.max_pending_calls);
  spec.set_max_pending_bytes(options.max_pending_bytes);
  spec.set_max_concurrency(options.max_concurrency);
  for (const ConcurrencyGroup& group : options.concurrency_groups) {
    v1::ConcurrencyGroup* out = spec.add_concurrency_groups();
    out->set_name(group.name);
    out->set_max_concurrency(group.max_concurrency);
    for (const std::string& method : group.methods) out->add_methods(method);
  }
  if (saves_state) spec.set_save_state_ms(options.save_state.milliseconds());
  for (const auto& [name, value] : options.env) {
    if (name.empty() || name.find('=') != std::string::npos || !IsUtf8(name) ||
        !IsUtf8(value) || name.find('\0') != std::string::npos ||
        value.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          "env '", ToUtf8(name),
          "': a name without '=', and UTF-8 without zero bytes throughout"));
    }
    (*spec.mutable_env())[name] = value;
  }
  for (const absl::Cord& arg : args) {
    if (!spec.add_constructor_args()->ParseFromString(std::string(arg))) {
      return absl::InvalidArgumentError(
          "a constructor argument is too large for a message");
    }
  }
  MR_RETURN_IF_ERROR(CheckUtf8("shared_process", options.shared_process));
  if (!options.shared_process.empty() && !options.env.empty()) {
    return absl::InvalidArgumentError(
        "an actor in a shared process cannot have an env of its own");
  }
  spec.set_shared_process(options.shared_process);
  MR_ASSIGN_OR_RETURN(const v1::ActorInfo info,
                      client()->CreateActor(std::move(spec)));
  return internal::ActorIdentity{info.actor_id(),
                                 info.class_name(),
                                 info.name(),
                                 options.max_retries,
                                 options.max_pending_calls,
                                 options.max_pending_bytes};
}

absl::StatusOr<internal::ActorIdentity> Cluster::Find(
    absl::string_view name, absl::string_view actor_namespace,
    const std::string& class_name) const {
  MR_RETURN_IF_ERROR(CheckUtf8("the actor's name", name));
  MR_RETURN_IF_ERROR(CheckUtf8("the actor's namespace", actor_namespace));
  MR_ASSIGN_OR_RETURN(const v1::ActorInfo info,
                      client()->FindActor(name, actor_namespace));
  if (info.class_name() != class_name) {
    return absl::InvalidArgumentError(absl::StrCat("the actor '", name,
                                                   "' is a ", info.class_name(),
                                                   ", not a ", class_name));
  }
  return internal::ActorIdentity{
      info.actor_id(),    info.class_name(),        info.name(),
      info.max_retries(), info.max_pending_calls(), info.max_pending_bytes()};
}

std::shared_ptr<internal::CallState> Cluster::PutEncoded(
    absl::StatusOr<absl::Cord> value) const {
  auto call = std::make_shared<internal::CallState>("Put");
  call->set_by_reference(client());
  std::shared_ptr<void> hold;
  absl::StatusOr<absl::Cord> reference =
      value.ok() ? client()->PutObject(*value, &hold) : value.status();
  call->Hold(std::move(hold));
  call->Complete(std::move(reference));
  return call;
}

absl::StatusOr<v1::GetClusterStateResponse> Cluster::GetState() const {
  return client()->GetClusterState();
}

void Cluster::Shutdown() { state_->Shutdown(); }

const std::string& Cluster::address() const {
  return state_->client->head_address();
}

const std::string& Cluster::job_id() const { return state_->client->job_id(); }

bool Cluster::embedded() const { return state_->embedded != nullptr; }

std::shared_ptr<internal::Client> Cluster::client() const {
  return state_->client;
}

const ActorContext* ActorContext::Current() {
  return thread_context != nullptr ? thread_context : default_context.load();
}

void ActorContext::SetCurrent(const ActorContext* context) {
  thread_context = context;
}

void ActorContext::SetDefault(const ActorContext* context) {
  default_context = context;
}

bool ActorContext::cancelled() const {
  internal::CurrentActor* const actor = internal::CurrentActor::Get();
  return actor != nullptr && actor->CallCancelled();
}

absl::Status ActorContext::SaveState() const {
  internal::CurrentActor* const actor = internal::CurrentActor::Get();
  if (actor == nullptr) {
    return absl::FailedPreconditionError(
        "SaveState belongs into a method of the actor, in its own thread");
  }
  return actor->SaveState();
}

void ActorContext::ExitActor() const { miniray::ExitActor(); }

void ExitActor() {
  internal::CurrentActor* const actor = internal::CurrentActor::Get();
  if (actor != nullptr) actor->Exit();
}

}  // namespace miniray
