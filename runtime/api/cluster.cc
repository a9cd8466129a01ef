#include "runtime/api/cluster.h"

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "runtime/actor/host.h"
#include "runtime/api/embedded_cluster.h"
#include "runtime/base/process_records.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/rpc/tls.h"

namespace miniray {
namespace {

// As given to Init.
std::string& AddressFlag() {
  static auto* const address = new std::string;
  return *address;
}

std::string& TlsDirFlag() {
  static auto* const dir = new std::string;
  return *dir;
}

bool& Initialized() {
  static bool initialized = false;
  return initialized;
}

const ActorContext* current_context = nullptr;

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
      if (auto dir = FlagValue("tls_dir", argc, argv, &i)) {
        TlsDirFlag() = *std::move(dir);
        continue;
      }
    }
    argv[kept++] = argv[i];
  }
  argc = kept;
  argv[argc] = nullptr;
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

void Init(int& argc, char** argv) {
  Initialized() = true;
  if (!internal::IsActorProcess()) {
    TakeFlags(argc, argv);
    return;
  }
  internal::HostActorAndExit([](const v1::HostActor& host) -> absl::Status {
    internal::Client::Options options;
    options.head_address = host.head_address();
    options.token = host.token();
    options.is_driver = false;
    options.job_id = host.spec().job_id();
    MR_ASSIGN_OR_RETURN(auto client, internal::Client::Connect(options));
    auto state = std::make_shared<Cluster::State>();
    state->client = std::move(client);
    ActorContext::SetCurrent(new ActorContext(host.spec(), host.node_id(),
                                              host.incarnation(),
                                              Cluster(std::move(state))));
    return absl::OkStatus();
  });
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
    if (options.embedded_nodes < 1 || options.embedded_num_cpus < 0) {
      return absl::InvalidArgumentError(
          "an embedded cluster needs at least one node and no negative CPUs");
    }
    MR_ASSIGN_OR_RETURN(state->embedded,
                        internal::EmbeddedCluster::Start(
                            {.num_nodes = options.embedded_nodes,
                             .num_cpus = options.embedded_num_cpus}));
    options.address = state->embedded->address();
    options.token.clear();
    MR_RETURN_IF_ERROR(UseTls(""));
  } else {
    if (options.token.empty()) options.token = Variable("MINIRAY_TOKEN");
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
  client.job_id = options.job_id;
  client.connect_timeout = options.connect_timeout;
  MR_ASSIGN_OR_RETURN(state->client, internal::Client::Connect(client));
  return Cluster(std::move(state));
}

absl::StatusOr<internal::ActorIdentity> Cluster::Create(
    const ActorOptions& options, const std::string& class_name,
    const internal::ArgumentList& args) const {
  for (const std::string* text : {&options.name, &options.actor_namespace}) {
    if (!IsUtf8(*text)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the actor's name or namespace is not UTF-8: ", ToUtf8(*text)));
    }
  }
  v1::ActorSpec spec;
  spec.set_class_name(class_name);
  spec.set_name(options.name);
  spec.set_actor_namespace(options.actor_namespace);
  auto& quantity = *spec.mutable_resources()->mutable_quantity();
  quantity["CPU"] = options.resources.cpu;
  quantity["GPU"] = options.resources.gpu;
  quantity["memory"] = options.resources.memory_bytes;
  for (const auto& [name, value] : options.resources.custom) {
    quantity[name] = value;
  }
  spec.set_max_restarts(options.max_restarts);
  spec.set_detached(options.detached);
  spec.set_num_threads(options.num_threads);
  for (const auto& [name, value] : options.env) {
    if (name.empty() || name.find('=') != std::string::npos || !IsUtf8(name) ||
        !IsUtf8(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("env '", ToUtf8(name),
                       "': a name without '=', and UTF-8 throughout"));
    }
    (*spec.mutable_env())[name] = value;
  }
  for (const absl::Cord& arg : args) {
    if (!spec.add_constructor_args()->ParseFromString(std::string(arg))) {
      return absl::InvalidArgumentError(
          "a constructor argument is too large for a message");
    }
  }
  MR_ASSIGN_OR_RETURN(const v1::ActorInfo info,
                      client()->CreateActor(std::move(spec)));
  return internal::ActorIdentity{info.actor_id(), info.class_name(),
                                 info.name()};
}

absl::StatusOr<internal::ActorIdentity> Cluster::Find(
    absl::string_view name, absl::string_view actor_namespace,
    const std::string& class_name) const {
  MR_ASSIGN_OR_RETURN(const v1::ActorInfo info,
                      client()->FindActor(name, actor_namespace));
  if (info.class_name() != class_name) {
    return absl::InvalidArgumentError(absl::StrCat("the actor '", name,
                                                   "' is a ", info.class_name(),
                                                   ", not a ", class_name));
  }
  return internal::ActorIdentity{info.actor_id(), info.class_name(),
                                 info.name()};
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

const ActorContext* ActorContext::Current() { return current_context; }

void ActorContext::SetCurrent(const ActorContext* context) {
  current_context = context;
}

}  // namespace miniray
