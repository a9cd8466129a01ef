// Measures small calls: how many a second one caller gets through to one actor
// when it does not wait for each, and how long one call takes there and back.
//
//   bazel-bin/tools/bench/calls [--address=HOST:PORT]

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"

class Counter {
 public:
  int64_t Add(int64_t n) { return value_ += n; }

 private:
  int64_t value_ = 0;
};
MINIRAY_ACTOR(Counter, Constructor<>, &Counter::Add);

namespace {

constexpr int kRounds = 8;
constexpr int kCallsPerRound = 50000;
constexpr int kSingleCalls = 5000;

// Calls a second of one round.
absl::StatusOr<double> Pipelined(const miniray::ActorHandle<Counter>& counter) {
  std::vector<miniray::ObjectRef<int64_t>> refs;
  refs.reserve(kCallsPerRound);
  const absl::Time start = absl::Now();
  for (int i = 0; i < kCallsPerRound; ++i) {
    refs.push_back(counter.Call<&Counter::Add>(1));
  }
  MR_RETURN_IF_ERROR(miniray::GetAll(refs).status());
  return kCallsPerRound / absl::ToDoubleSeconds(absl::Now() - start);
}

absl::Status Measure() {
  MR_ASSIGN_OR_RETURN(miniray::Cluster cluster, miniray::Cluster::Connect());
  MR_ASSIGN_OR_RETURN(auto counter, cluster.CreateActor<Counter>({}));
  MR_RETURN_IF_ERROR(counter.WaitReady());
  MR_RETURN_IF_ERROR(Pipelined(counter).status());  // Warms up.
  std::vector<double> rates;
  for (int i = 0; i < kRounds; ++i) {
    MR_ASSIGN_OR_RETURN(const double rate, Pipelined(counter));
    rates.push_back(rate);
  }
  std::sort(rates.begin(), rates.end());
  std::printf("pipelined calls/s: median %.0f, best %.0f\n",
              rates[rates.size() / 2], rates.back());
  std::vector<double> micros;
  for (int i = 0; i < kSingleCalls; ++i) {
    const absl::Time start = absl::Now();
    MR_RETURN_IF_ERROR(counter.Call<&Counter::Add>(1).Get().status());
    micros.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
  }
  std::sort(micros.begin(), micros.end());
  std::printf("one call there and back, us: median %.0f, p99 %.0f\n",
              micros[micros.size() / 2], micros[micros.size() * 99 / 100]);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  const absl::Status status = Measure();
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 1;
  }
  return 0;
}
