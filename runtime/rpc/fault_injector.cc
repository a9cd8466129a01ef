#include "runtime/rpc/fault_injector.h"

#include <glog/logging.h>

#include <atomic>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "grpcpp/alarm.h"
#include "grpcpp/client_context.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

using grpc::experimental::ClientRpcInfo;
using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::Interceptor;
using grpc::experimental::InterceptorBatchMethods;

// A number in [0, 1) that depends on nothing but the arguments (FNV-1a, then
// the finaliser of SplitMix64).
double Draw(uint64_t seed, uint64_t rule, absl::string_view path, uint64_t kind,
            uint64_t n) {
  uint64_t hash = 14695981039346656037U;
  auto mix = [&hash](uint64_t byte) { hash = (hash ^ byte) * 1099511628211U; };
  for (const char c : path) mix(static_cast<uint8_t>(c));
  for (uint64_t value : {seed, rule, kind, n}) {
    for (int shift = 0; shift < 64; shift += 8) mix((value >> shift) & 0xff);
  }
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9U;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebU;
  hash ^= hash >> 31;
  return static_cast<double>(hash >> 11) / static_cast<double>(1ULL << 53);
}

double ProbabilityOf(const FaultRule& rule, FaultInjector::Kind kind) {
  switch (kind) {
    case FaultInjector::Kind::kDropRequest:
      return rule.drop_request;
    case FaultInjector::Kind::kDropReply:
      return rule.drop_reply;
    case FaultInjector::Kind::kDelay:
      return rule.delay;
    case FaultInjector::Kind::kReset:
      return rule.reset;
  }
  return 0;
}

// One call. gRPC may run the batches of a stream's two directions at once.
class Faults : public Interceptor {
 public:
  Faults(std::shared_ptr<FaultInjector> injector, ClientRpcInfo* info)
      : injector_(std::move(injector)), info_(info), path_(info->method()) {
    drop_request_ = injector_->Decide(path_, FaultInjector::Kind::kDropRequest);
    if (!drop_request_ && info->type() != ClientRpcInfo::Type::BIDI_STREAMING) {
      drop_reply_ = injector_->Decide(path_, FaultInjector::Kind::kDropReply);
    }
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    auto at = [methods](InterceptionHookPoints point) {
      return methods->QueryInterceptionHookPoint(point);
    };
    if (at(InterceptionHookPoints::PRE_SEND_CANCEL)) return;
    absl::Duration delay;
    if (at(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA) &&
        drop_request_) {
      // Before anything of it is sent.
      info_->client_context()->TryCancel();
    } else if (at(InterceptionHookPoints::PRE_SEND_MESSAGE)) {
      injector_->Decide(path_, FaultInjector::Kind::kDelay, &delay);
      MaybeReset();
    }
    if (at(InterceptionHookPoints::POST_RECV_MESSAGE) &&
        methods->GetRecvMessage() != nullptr) {
      MaybeReset();
    }
    if (at(InterceptionHookPoints::POST_RECV_STATUS)) {
      if (grpc::Status* status = methods->GetRecvStatus()) SetStatus(status);
    }
    if (delay <= absl::ZeroDuration()) {
      methods->Proceed();
      return;
    }
    // No thread waits.
    auto* const alarm = new grpc::Alarm;
    alarm->Set(absl::ToChronoTime(absl::Now() + delay), [alarm, methods](bool) {
      methods->Proceed();
      delete alarm;
    });
  }

 private:
  void MaybeReset() {
    if (drop_request_ || reset_ ||
        !injector_->Decide(path_, FaultInjector::Kind::kReset)) {
      return;
    }
    reset_ = true;
    info_->client_context()->TryCancel();
  }

  void SetStatus(grpc::Status* status) const {
    const char* fault = nullptr;
    if (drop_request_) {
      fault = "the request was dropped";
    } else if (reset_ && status->error_code() == grpc::StatusCode::CANCELLED) {
      fault = "the connection was reset";
    } else if (drop_reply_) {
      fault = "the reply was dropped";
    }
    if (fault == nullptr) return;
    *status = grpc::Status(
        grpc::StatusCode::UNAVAILABLE,
        absl::StrCat(fault, " by the fault injector (", path_, ")"));
  }

  const std::shared_ptr<FaultInjector> injector_;
  ClientRpcInfo* const info_;
  const std::string path_;
  bool drop_request_ = false;
  bool drop_reply_ = false;
  std::atomic<bool> reset_ = false;
};

class Factory : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit Factory(std::shared_ptr<FaultInjector> injector)
      : injector_(std::move(injector)) {}

  Interceptor* CreateClientInterceptor(ClientRpcInfo* info) override {
    // gRPC takes null for "none".
    if (!injector_->Matches(info->method())) return nullptr;
    return new Faults(injector_, info);
  }

 private:
  const std::shared_ptr<FaultInjector> injector_;
};

absl::Mutex active_mu(absl::kConstInit);

std::shared_ptr<FaultInjector>& Active()
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(active_mu) {
  static auto* const active = new std::shared_ptr<FaultInjector>;
  return *active;
}

}  // namespace

bool FaultRule::Matches(absl::string_view path) const {
  // "/miniray.v1.Head/CreateActor"
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return false;
  if (!method.empty() && path.substr(slash + 1) != method) return false;
  if (service.empty()) return true;
  absl::string_view full = path.substr(0, slash);
  const size_t dot = full.find_last_of("./");
  return (dot == absl::string_view::npos ? full : full.substr(dot + 1)) ==
         service;
}

bool FaultInjector::Matches(absl::string_view path) const {
  for (const FaultRule& rule : spec_.rules) {
    if (rule.Matches(path)) return true;
  }
  return false;
}

bool FaultInjector::Decide(const std::string& path, Kind kind,
                           absl::Duration* delay) {
  bool decided = false;
  absl::MutexLock lock(&mu_);
  for (size_t i = 0; i < spec_.rules.size(); ++i) {
    const FaultRule& rule = spec_.rules[i];
    const double probability = ProbabilityOf(rule, kind);
    if (probability <= 0 || !rule.Matches(path)) continue;
    const uint64_t n = asked_[{i, path, kind}]++;
    if (Draw(spec_.seed, i, path, static_cast<uint64_t>(kind), n) >=
        probability) {
      continue;
    }
    if (int64_t& done = done_[{i, path}]; done < rule.limit) {
      ++done;
    } else {
      continue;
    }
    decided = true;
    if (delay != nullptr) *delay += rule.delay_time;
  }
  return decided;
}

absl::Status UseFaults(absl::string_view spec) {
  std::shared_ptr<FaultInjector> injector;
  if (!spec.empty()) {
    MR_ASSIGN_OR_RETURN(FaultSpec parsed, ParseFaultSpec(spec));
    LOG(WARNING) << "calls of this process are disturbed on purpose: " << spec
                 << " (seed " << parsed.seed << ")";
    injector = std::make_shared<FaultInjector>(std::move(parsed));
  }
  absl::MutexLock lock(&active_mu);
  Active() = std::move(injector);
  return absl::OkStatus();
}

absl::Status UseFaultsFromEnvironment() {
  static const auto* const status = new absl::Status([] {
    const char* const spec = std::getenv(kFaultsVariable);
    if (spec == nullptr) return absl::OkStatus();
    return Annotate(UseFaults(spec), absl::StrCat("$", kFaultsVariable));
  }());
  return *status;
}

std::vector<
    std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>>
FaultInterceptors() {
  std::vector<
      std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>>
      factories;
  absl::MutexLock lock(&active_mu);
  if (Active() != nullptr) {
    factories.push_back(std::make_unique<Factory>(Active()));
  }
  return factories;
}

}  // namespace miniray
