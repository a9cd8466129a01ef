// Measures the parameter server's aggregation, without processes around it,
// against the plainest loop over the same memory.
//
//   bazel-bin/tools/bench/kernels [--mb=N] [--rounds=N] [--json] [--check]

#include "ps/kernels.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/from_blob.h"
#include "absl/flags/flag.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "ps/compression/difference.h"
#include "ps/order_kernels.h"
#include "ps/strategy_registry.h"
#include "ps/tensor_math.h"
#include "runtime/api/miniray.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/bench.h"
#include "tools/bench/child.h"
#include "tools/bench/node_memory.h"
#include "tools/bench/peers/read_write_loop.h"

ABSL_FLAG(int, mb, 100, "Megabytes of a worker's weights.");

namespace miniray::bench {
namespace {

constexpr char kHelp[] =
    R"(Measures how long the weights of 4 workers, 100 MB each, take to become one
set of weights, where they already lie in memory.

  kernels [FLAGS]

The peer reads the same four arrays and writes a fifth, with one instruction of
arithmetic for each that it reads. Kernels run on one and on two threads;
strategies as in the server, on all cores, against the loop on as many.

Compression: of the difference between two workers, with what it loses, as a
worker does it; and back, as the server does. In the same time the peer reads
and writes more.

Extra memory of a strategy: the most that a process uses in three aggregations,
less the workers' weights, the server's, and the result, in models.

  --mb=N       megabytes (10^6 bytes) of a worker's weights (default 100))";

constexpr char kMemoryRole[] = "memory";
constexpr int kMemoryAggregations = 3;

constexpr double kLeastOfBandwidth = 0.8;
constexpr double kMostForSorting = 4;
// Two models, and what a process needs besides: stacks, tables.
constexpr double kMostExtraMemory = 2.1;

struct Strategy {
  std::string name;
  ps::StrategyOptions options;
  std::string title = name;
};

// All that come with the server. Of four workers none may be malicious, by
// Krum's rules; the work is the same.
std::vector<Strategy> Strategies() {
  const ps::StrategyOptions honest = {{"num_malicious", 0}};
  return {{"average", {}},
          {"weighted", {}},
          {"momentum", {}},
          {"median", {}},
          {"trimmed_mean", {}},
          {"krum", honest},
          {"multi_krum", honest},
          {"bulyan", honest},
          {"fedavgm", {}},
          {"fedadam", {}},
          {"fedyogi", {}},
          {"fedadagrad", {}},
          {"diloco", {}},
          {"dp", {}},
          {"sgd", {}},
          {"adam", {}},
          {"adamw", {}},
          {"adagrad", {}},
          {"dp", {{"inner", "fedadam"}}, "dp over fedadam"}};
}

// The weights of four workers, in memory that has been touched.
class Workers {
 public:
  explicit Workers(int64_t bytes)
      : count_(bytes / static_cast<int64_t>(sizeof(float))) {
    for (int w = 0; w < kLoopInputs; ++w) {
      std::vector<float>& values = values_.emplace_back();
      values.resize(static_cast<size_t>(count_));
      uint32_t random = 1 + static_cast<uint32_t>(w);
      for (float& value : values) {
        random = random * 1664525 + 1013904223;
        value = static_cast<float>(random >> 8) * 0x1p-24F - 0.5F;
      }
      inputs_[static_cast<size_t>(w)] = values.data();
      contributions_.push_back(
          {.worker_id = w,
           .tensors = {{"w", at::from_blob(values.data(), {count_},
                                           at::dtype(at::kFloat))}}});
    }
    out_.resize(static_cast<size_t>(count_));
  }

  int64_t count() const { return count_; }
  const std::array<const float*, kLoopInputs>& inputs() const {
    return inputs_;
  }
  float* out() { return out_.data(); }
  const std::vector<ps::Contribution>& contributions() const {
    return contributions_;
  }

  // Seconds that work(begin, end) takes for all elements, in equal parts by so
  // many threads.
  double Time(int threads,
              absl::FunctionRef<void(int64_t, int64_t)> work) const {
    const absl::Time start = absl::Now();
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) {
      others.emplace_back(
          [&, t] { work(count_ * t / threads, count_ * (t + 1) / threads); });
    }
    work(0, count_ / threads);
    for (std::thread& other : others) other.join();
    return SecondsSince(start);
  }

  // The inputs from `begin` on.
  std::vector<const float*> From(int64_t begin) const {
    std::vector<const float*> inputs;
    for (const float* input : inputs_) inputs.push_back(input + begin);
    return inputs;
  }

 private:
  const int64_t count_;
  std::vector<std::vector<float>> values_;
  std::array<const float*, kLoopInputs> inputs_;
  std::vector<ps::Contribution> contributions_;
  std::vector<float> out_;
};

// A strategy between two synchronisations, and the server's weights.
struct Running {
  std::unique_ptr<ps::SyncStrategy> strategy;
  NamedTensors weights;

  static absl::StatusOr<Running> Start(const Strategy& strategy,
                                       const Workers& workers) {
    Running running;
    MR_ASSIGN_OR_RETURN(running.strategy, ps::StrategyRegistry::Get().Create(
                                              strategy.name, strategy.options));
    running.weights = ps::MeanOfModels(
        absl::MakeConstSpan(workers.contributions()).subspan(0, 1));
    running.strategy->Reset(running.weights);
    return running;
  }

  // Seconds.
  absl::StatusOr<double> Aggregate(const Workers& workers) {
    const absl::Time start = absl::Now();
    MR_ASSIGN_OR_RETURN(NamedTensors result,
                        strategy->Aggregate(workers.contributions()));
    const double seconds = SecondsSince(start);
    weights = std::move(result);
    return seconds;
  }
};

// The difference between two workers, on its way to the server.
struct Compressed {
  ps::CompressionOptions compression;
  NamedTensors encoded;

  // Both return seconds.
  double Encode(const Workers& workers) {
    const absl::Time start = absl::Now();
    encoded = ps::EncodeDifference({.compression = compression,
                                    .to = &workers.contributions()[0].tensors,
                                    .from = &workers.contributions()[1].tensors,
                                    .wants_lost = true})
                  .encoded;
    return SecondsSince(start);
  }
  absl::StatusOr<double> Decode(const Workers& workers) const {
    const absl::Time start = absl::Now();
    MR_RETURN_IF_ERROR(ps::ApplyDifference(compression, encoded,
                                           workers.contributions()[1].tensors)
                           .status());
    return SecondsSince(start);
  }
};

std::vector<Compressed> Compressions() {
  using ps::Compression;
  std::vector<Compressed> all;
  for (const Compression method : {Compression::kFp16, Compression::kBf16,
                                   Compression::kInt8, Compression::kTopK}) {
    all.push_back({.compression = {.method = method}});
  }
  return all;
}

// In a process of its own, where no memory is left over from others: "INDEX
// BYTES" -> bytes beyond workers, server and result.
absl::StatusOr<std::string> ExtraMemory(const std::string& command) {
  std::istringstream words(command);
  size_t index = 0;
  int64_t bytes = 0;
  words >> index >> bytes;
  const Workers workers(bytes);
  MR_ASSIGN_OR_RETURN(Running running,
                      Running::Start(Strategies().at(index), workers));
  const int64_t before = TreeMemory({});
  MR_ASSIGN_OR_RETURN(
      const int64_t peak, PeakTreeMemory({}, [&]() -> absl::Status {
        for (int i = 0; i < kMemoryAggregations; ++i) {
          MR_RETURN_IF_ERROR(running.Aggregate(workers).status());
        }
        return absl::OkStatus();
      }));
  return absl::StrCat(peak - before - bytes);
}

int ServeMemory() { return ServeCommands(ExtraMemory); }

absl::StatusOr<double> ExtraModels(size_t index, int64_t bytes) {
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Child> child,
                      Child::Start(kMemoryRole, {}));
  MR_ASSIGN_OR_RETURN(const double extra,
                      child->AskNumber(absl::StrCat(index, " ", bytes)));
  return extra / static_cast<double>(bytes);
}

absl::Status Measure(Table* table) {
  const int64_t bytes = int64_t{absl::GetFlag(FLAGS_mb)} * 1000000;
  const std::vector<Strategy> strategies = Strategies();
  std::vector<double> extra;
  for (size_t i = 0; i < strategies.size(); ++i) {
    MR_ASSIGN_OR_RETURN(extra.emplace_back(), ExtraModels(i, bytes));
  }

  Workers workers(bytes);
  const int cores =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const std::vector<double> quarters(kLoopInputs, 1.0 / kLoopInputs);
  const auto loop = [&](int64_t begin, int64_t end) {
    ReadWriteLoop(workers.inputs(), begin, end, workers.out());
  };
  const auto average = [&](int64_t begin, int64_t end) {
    ps::LinearCombination(workers.From(begin), quarters, end - begin,
                          workers.out() + begin);
  };
  // Of four, trimmed_mean cuts one on each side, too: the same function.
  const auto median = [&](int64_t begin, int64_t end) {
    ps::TrimmedMean(workers.From(begin), (kLoopInputs - 1) / 2, end - begin,
                    workers.out() + begin);
  };
  std::vector<Measurement> measurements;
  for (const int threads : {1, 2}) {
    const std::string suffix = absl::StrCat(", ", threads, " threads");
    measurements.push_back({"loop" + suffix, [&, threads] {
                              return workers.Time(threads, loop);
                            }});
    measurements.push_back({"average" + suffix, [&, threads] {
                              return workers.Time(threads, average);
                            }});
    measurements.push_back({"median" + suffix, [&, threads] {
                              return workers.Time(threads, median);
                            }});
  }
  const size_t first_strategy = measurements.size() + 1;
  measurements.push_back(
      {"loop, all cores", [&] { return workers.Time(cores, loop); }});
  std::vector<Running> running;
  for (const Strategy& strategy : strategies) {
    MR_ASSIGN_OR_RETURN(running.emplace_back(),
                        Running::Start(strategy, workers));
  }
  for (size_t i = 0; i < strategies.size(); ++i) {
    measurements.push_back(
        {strategies[i].name, [&, i] { return running[i].Aggregate(workers); }});
  }
  const size_t first_compression = measurements.size();
  std::vector<Compressed> compressions = Compressions();
  for (Compressed& each : compressions) {
    const std::string name = ps::ToString(each.compression);
    measurements.push_back(
        {"compress " + name, [&] { return each.Encode(workers); }});
    measurements.push_back(
        {"decompress " + name, [&] { return each.Decode(workers); }});
  }
  MR_ASSIGN_OR_RETURN(const std::vector<double> seconds,
                      MeasureInTurn(measurements, table));

  const double gigabytes = static_cast<double>(bytes) * (kLoopInputs + 1) / 1e9;
  for (size_t t = 0; t < 2; ++t) {
    const std::string threads = t == 0 ? ", 1 thread" : ", 2 threads";
    const double* const of = seconds.data() + 3 * t;
    table->Add({.what = "average" + threads,
                .unit = "GB/s",
                .ours = gigabytes / of[1],
                .peer_name = "read and write",
                .peer = gigabytes / of[0],
                .at_least = kLeastOfBandwidth});
    table->Add({.what = "median" + threads,
                .unit = "ms",
                .ours = of[2] * 1e3,
                .peer_name = "read and write",
                .peer = of[0] * 1e3,
                .at_most = kMostForSorting});
  }
  for (size_t i = 0; i < strategies.size(); ++i) {
    const std::string& name = strategies[i].name;
    Row row = {.what = "strategy " + name,
               .unit = "ms",
               .ours = seconds[first_strategy + i] * 1e3,
               .peer_name = "read and write, all cores",
               .peer = seconds[first_strategy - 1] * 1e3};
    if (name == "average") row.at_most = 1 / kLeastOfBandwidth;
    if (name == "median" || name == "trimmed_mean") {
      row.at_most = kMostForSorting;
    }
    table->Add(std::move(row));
  }
  for (size_t i = first_compression; i < measurements.size(); ++i) {
    table->Add({.what = measurements[i].name,
                .unit = "ms",
                .ours = seconds[i] * 1e3,
                .peer_name = "read and write, all cores",
                .peer = seconds[first_strategy - 1] * 1e3});
  }
  for (size_t i = 0; i < strategies.size(); ++i) {
    table->Add({.what = "extra memory of " + strategies[i].title,
                .unit = "models",
                .ours = extra[i],
                .at_most = kMostExtraMemory});
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace miniray::bench

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  namespace bench = miniray::bench;
  return bench::Main(argc, argv,
                     {.name = "kernels",
                      .help = bench::kHelp,
                      .measure = bench::Measure,
                      .roles = {{bench::kMemoryRole, bench::ServeMemory}}});
}
