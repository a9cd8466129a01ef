// Measures small calls: how long one takes there and back, and how many a
// second get through, against the same through generated gRPC stubs.
//
//   bazel-bin/tools/bench/calls [--rounds=N] [--json] [--check]

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "runtime/api/miniray.h"
#include "tools/bench/bench.h"
#include "tools/bench/child.h"
#include "tools/bench/peers/grpc_echo.h"
#include "tools/bench/peers/ray.h"

ABSL_FLAG(int, single_calls, 2000, "Calls one at a time, a round.");
ABSL_FLAG(int, flood_calls, 100000, "Calls in flight, a round and caller.");

class Counter {
 public:
  int64_t Add(int64_t n) { return value_ += n; }

 private:
  int64_t value_ = 0;
};
MINIRAY_ACTOR(Counter, Constructor<>, &Counter::Add);

namespace miniray::bench {
namespace {

constexpr char kHelp[] =
    R"(Measures small calls: one int64 there, one int64 back.

  calls [FLAGS]

A caller is a process; so is an actor. The peer is a unary call through
generated gRPC stubs over TCP between two processes: one at a time with its
blocking API, and with 1,000 calls in flight through its callback API. A call
over TCP is also compared with a message there and back on a bare gRPC stream.

  --single_calls=N  calls one at a time, a round (default 2000)
  --flood_calls=N   calls in flight, a round and caller (default 100000; the
                    gRPC peer makes a fifth of them))";

constexpr char kCallerRole[] = "caller";
constexpr int kCallers = 4;
constexpr int kRawInFlight = 1000;
// The raw peer is slower; a fifth takes long enough to be measured.
constexpr int kRawShare = 5;
// Below what an actor takes from one caller (ActorOptions::max_pending_calls).
constexpr int kBatch = 50000;

// --- A caller, in a process of its own.

absl::StatusOr<double> RoundTrip(const ActorHandle<Counter>& counter,
                                 int calls) {
  std::vector<double> micros;
  for (int i = 0; i < calls; ++i) {
    const absl::Time start = absl::Now();
    MR_RETURN_IF_ERROR(counter.Call<&Counter::Add>(1).Get().status());
    micros.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
  }
  return Median(std::move(micros));
}

// Seconds.
absl::StatusOr<double> Flood(const ActorHandle<Counter>& counter, int calls) {
  const absl::Time start = absl::Now();
  for (int left = calls; left > 0; left -= kBatch) {
    std::vector<ObjectRef<int64_t>> refs;
    refs.reserve(kBatch);
    for (int i = 0; i < std::min(left, kBatch); ++i) {
      refs.push_back(counter.Call<&Counter::Add>(1));
    }
    MR_RETURN_IF_ERROR(GetAll(refs).status());
  }
  return SecondsSince(start);
}

absl::StatusOr<std::string> Answer(const ActorHandle<Counter>& counter,
                                   const std::string& command) {
  const std::vector<std::string> words = absl::StrSplit(command, ' ');
  int calls = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[1], &calls)) {
    return absl::InvalidArgumentError(command);
  }
  MR_ASSIGN_OR_RETURN(const double value, words[0] == "single"
                                              ? RoundTrip(counter, calls)
                                              : Flood(counter, calls));
  return absl::StrCat(value);
}

absl::StatusOr<ActorHandle<Counter>> MakeCounter() {
  const ActorOptions options = {.env = TransportOfThisProcess()};
  // The connection lives as long as the process.
  static absl::StatusOr<Cluster> cluster = Cluster::Connect();
  if (!cluster.ok()) return cluster.status();
  return cluster->CreateActor<Counter>(options);
}

int RunCaller() {
  const absl::StatusOr<ActorHandle<Counter>> counter = MakeCounter();
  return ServeCommands(
      [&](const std::string& command) -> absl::StatusOr<std::string> {
        if (!counter.ok()) return counter.status();
        return Answer(*counter, command);
      });
}

// --- The benchmark.

absl::StatusOr<std::vector<std::unique_ptr<Child>>> StartCallers(
    const Cluster& cluster, int count, const Child::Environment& environment) {
  std::vector<std::unique_ptr<Child>> callers;
  for (int i = 0; i < count; ++i) {
    MR_ASSIGN_OR_RETURN(
        std::unique_ptr<Child> caller,
        Child::Start(kCallerRole,
                     {absl::StrCat("--address=", cluster.address())},
                     environment));
    callers.push_back(std::move(caller));
  }
  MR_RETURN_IF_ERROR(AskAll(callers, "single 1").status());
  return callers;
}

// Calls a second of all callers together.
absl::StatusOr<double> FloodAll(
    const std::vector<std::unique_ptr<Child>>& callers, int calls) {
  const absl::Time start = absl::Now();
  MR_RETURN_IF_ERROR(AskAll(callers, absl::StrCat("flood ", calls)).status());
  return calls * static_cast<double>(callers.size()) / SecondsSince(start);
}

absl::Status Measure(Table* table) {
  const int single = absl::GetFlag(FLAGS_single_calls);
  const int flood = absl::GetFlag(FLAGS_flood_calls);
  MR_ASSIGN_OR_RETURN(std::unique_ptr<GrpcEcho> raw, GrpcEcho::Start());
  MR_ASSIGN_OR_RETURN(const Cluster cluster,
                      Cluster::Connect({.embedded_num_cpus = 8}));
  MR_ASSIGN_OR_RETURN(const auto local, StartCallers(cluster, 1, {}));
  MR_ASSIGN_OR_RETURN(const auto tcp,
                      StartCallers(cluster, 1, TcpEnvironment()));
  MR_ASSIGN_OR_RETURN(const auto four, StartCallers(cluster, kCallers, {}));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Child> ray, StartRay());

  const std::string one_at_a_time = absl::StrCat("single ", single);
  std::vector<Measurement> measurements = {
      {"one call", [&] { return local[0]->AskNumber(one_at_a_time); }},
      {"one call through TCP",
       [&] { return tcp[0]->AskNumber(one_at_a_time); }},
      {"raw gRPC", [&] { return raw->RoundTrip(single); }},
      {"raw gRPC stream", [&] { return raw->StreamRoundTrip(single); }},
      {"calls in flight", [&] { return FloodAll(local, flood); }},
      {"4 callers", [&] { return FloodAll(four, flood); }},
      {"calls in flight through TCP", [&] { return FloodAll(tcp, flood); }},
      {"raw gRPC flood", [&] {
         return raw->Flood(std::max(1, flood / kRawShare), kRawInFlight);
       }}};
  if (ray != nullptr) {
    measurements.push_back(
        {"Ray",
         [&] { return ray->AskNumber(absl::StrCat("round_trip ", single)); }});
    measurements.push_back({"Ray flood", [&] {
                              return ray->AskNumber(absl::StrCat(
                                  "flood ", std::max(1, flood / 10)));
                            }});
  }
  MR_ASSIGN_OR_RETURN(const std::vector<double> medians,
                      MeasureInTurn(measurements, table));
  const std::string echo = "raw unary gRPC, TCP";
  table->Add({.what = "one call at a time, same node",
              .unit = "us",
              .ours = medians[0],
              .peer_name = echo,
              .peer = medians[2],
              .at_most = 0.55});
  table->Add({.what = "one call at a time, through TCP",
              .unit = "us",
              .ours = medians[1],
              .peer_name = echo,
              .peer = medians[2],
              .at_most = 0.9});
  table->Add({.what = "one call at a time, through TCP",
              .unit = "us",
              .ours = medians[1],
              .peer_name = "bare gRPC stream, TCP",
              .peer = medians[3]});
  table->Add({.what = "calls in flight, 1 caller, 1 actor",
              .unit = "calls/s",
              .ours = medians[4],
              .peer_name = "raw callback gRPC, 1000 in flight",
              .peer = medians[7],
              .at_least = 10});
  table->Add({.what = "calls in flight, 4 callers, 4 actors",
              .unit = "calls/s",
              .ours = medians[5],
              .peer_name = "1 caller, 1 actor",
              .peer = medians[4],
              .at_least = 1});
  table->Add({.what = "calls in flight through TCP, 1 caller, 1 actor",
              .unit = "calls/s",
              .ours = medians[6],
              .peer_name = "raw callback gRPC, 1000 in flight",
              .peer = medians[7]});
  table->Add({.what = "one call at a time, same node",
              .unit = "us",
              .ours = medians[0],
              .peer_name = ray == nullptr ? kNoRay : "Ray",
              .peer = ray == nullptr ? std::nullopt
                                     : std::optional<double>(medians[8])});
  table->Add({.what = "calls in flight, 1 caller, 1 actor",
              .unit = "calls/s",
              .ours = medians[4],
              .peer_name = ray == nullptr ? kNoRay : "Ray",
              .peer = ray == nullptr ? std::nullopt
                                     : std::optional<double>(medians[9])});
  return absl::OkStatus();
}

}  // namespace
}  // namespace miniray::bench

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  namespace bench = miniray::bench;
  return bench::Main(argc, argv,
                     {.name = "calls",
                      .help = bench::kHelp,
                      .measure = bench::Measure,
                      .roles = {{bench::kCallerRole, bench::RunCaller},
                                {bench::kGrpcEchoRole, bench::ServeGrpcEcho}}});
}
