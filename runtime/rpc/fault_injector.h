// Faults on demand: lets calls that this process makes fail, as a bad network
// or a dying peer would, for tests. Off unless asked for, and then free of
// cost.
//
// A specification, e.g.
//
//   Head/CreateActor:drop_request=0.1,drop_reply=0.1;Head/*:delay=0.2@50ms;
//   Channel:reset=0.01;seed=7
//
// has rules "METHOD:FAULT,FAULT..." and at most one "seed=N", separated by ';'.
// METHOD is "Service/Method", "Service/*", "Method" or "*", as in proto/. All
// rules that match a call apply to it. Faults:
//
//   drop_request=P  the call fails before anything is sent
//   drop_reply=P    it runs, but its reply is lost (not for two-way streams)
//   delay=P@D       a message is sent D later (50ms, 1.5s); P for each message
//   reset=P         the call breaks after a message; P for each message
//   limit=N         at most N faults of this rule and method, then none
//
// P is a probability. All fail with UNAVAILABLE. What befalls the n-th call (or
// message) of a method depends on the seed alone.

#ifndef MINIRAY_RUNTIME_RPC_FAULT_INJECTOR_H_
#define MINIRAY_RUNTIME_RPC_FAULT_INJECTOR_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/support/client_interceptor.h"

namespace miniray {

inline constexpr char kFaultsVariable[] = "MINIRAY_FAULTS";

struct FaultRule {
  std::string service;  // Empty: any.
  std::string method;   // Empty: any.
  double drop_request = 0;
  double drop_reply = 0;
  double delay = 0;
  absl::Duration delay_time;
  double reset = 0;
  int64_t limit = std::numeric_limits<int64_t>::max();

  // path: "/miniray.v1.Head/CreateActor".
  bool Matches(absl::string_view path) const;
};

struct FaultSpec {
  std::vector<FaultRule> rules;
  uint64_t seed = 1;
};

// Errors: INVALID_ARGUMENT with the position, counted from 1, of what is wrong.
absl::StatusOr<FaultSpec> ParseFaultSpec(absl::string_view text);

// Decides what befalls calls. Thread-safe.
class FaultInjector {
 public:
  enum class Kind { kDropRequest, kDropReply, kDelay, kReset };

  explicit FaultInjector(FaultSpec spec) : spec_(std::move(spec)) {}

  bool Matches(absl::string_view path) const;

  // Whether the next call or message of the method at `path` has such a fault.
  // For kDelay, *delay is by how much.
  bool Decide(const std::string& path, Kind kind,
              absl::Duration* delay = nullptr);

 private:
  const FaultSpec spec_;
  absl::Mutex mu_;
  // By rule, method and kind: how often it was asked.
  std::map<std::tuple<size_t, std::string, Kind>, uint64_t> asked_
      ABSL_GUARDED_BY(mu_);
  // By rule and method.
  std::map<std::pair<size_t, std::string>, int64_t> done_ ABSL_GUARDED_BY(mu_);
};

// Channels made from now on have the faults in `spec`; empty: none. Logs a line
// that says so. Errors: see ParseFaultSpec. Thread-safe.
absl::Status UseFaults(absl::string_view spec);

// What $MINIRAY_FAULTS asks for, the first time it is called; nothing if the
// variable is not set. Errors: as UseFaults, naming the variable.
absl::Status UseFaultsFromEnvironment();

// For MakeChannel: empty if there are no faults.
std::vector<
    std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>>
FaultInterceptors();

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RPC_FAULT_INJECTOR_H_
