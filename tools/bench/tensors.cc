// Measures a large tensor as result and argument of a call, inside a node and
// through TCP, against generated gRPC stubs, gRPC slices and the memory.
//
//   bazel-bin/tools/bench/tensors [--mb=N] [--rounds=N] [--json] [--check]

#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"
#include "tools/bench/bench.h"
#include "tools/bench/child.h"
#include "tools/bench/peers/grpc_bulk.h"
#include "tools/bench/peers/memory.h"
#include "tools/bench/peers/ray.h"

ABSL_FLAG(int, mb, 100, "Megabytes of the tensor.");

namespace miniray::bench {

// float32 [bytes / 4], the pattern.
at::Tensor PatternTensor(int64_t bytes) {
  at::Tensor tensor =
      at::empty({bytes / static_cast<int64_t>(sizeof(float))}, at::kFloat);
  auto* const data = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) data[i] = PatternAt(i);
  return tensor;
}

absl::Status CheckTensor(const at::Tensor& tensor, int64_t bytes) {
  return CheckPattern(static_cast<const char*>(tensor.data_ptr()),
                      tensor.nbytes(), bytes);
}

// Whether the address lies in memory that others can map as well: of a file,
// or shared otherwise.
bool IsShared(const void* address) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    std::istringstream fields(line);
    uintptr_t begin = 0, end = 0;
    char dash;
    std::string flags, offset, device;
    uint64_t inode = 0;
    fields >> std::hex >> begin >> dash >> end >> flags >> offset >> device >>
        std::dec >> inode;
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    if (begin <= wanted && wanted < end) return inode != 0;
  }
  return false;
}

using ReadOnlyTensor = ReadOnly<at::Tensor>;

struct ReadReport {
  double seconds = 0;
  double sum = 0;
  bool copied = false;
};
MINIRAY_STRUCT(ReadReport, seconds, sum, copied);

// An actor that holds a tensor, and reads those of others.
class Holder {
 public:
  explicit Holder(int64_t bytes) : tensor_(PatternTensor(bytes)) {}

  at::Tensor Get() { return tensor_; }
  ReadOnlyTensor Lend() { return {tensor_}; }

  int64_t Set(at::Tensor tensor) {
    received_ = std::move(tensor);
    return received_.numel();
  }
  int64_t SetLent(ReadOnlyTensor tensor) {
    return Set(std::move(tensor.value));
  }
  absl::Status CheckReceived(int64_t bytes) {
    return CheckTensor(std::exchange(received_, at::Tensor()), bytes);
  }

  absl::StatusOr<ReadReport> Read(const ObjectRef<ReadOnlyTensor>& ref) {
    ReadReport report;
    const absl::Time start = absl::Now();
    MR_ASSIGN_OR_RETURN(const ReadOnlyTensor value, ref.Get());
    const at::Tensor& tensor = value.value;
    report.sum = Sum(tensor.data_ptr<float>(), tensor.numel());
    report.seconds = SecondsSince(start);
    report.copied = !IsShared(tensor.data_ptr());
    return report;
  }

 private:
  at::Tensor tensor_;
  at::Tensor received_;
};
MINIRAY_ACTOR(Holder, Constructor<int64_t>, &Holder::Get, &Holder::Lend,
              &Holder::Set, &Holder::SetLent, &Holder::CheckReceived,
              &Holder::Read);

namespace {

constexpr char kHelp[] =
    R"(Measures a tensor of 100 MB that crosses from one process to another.

  tensors [FLAGS]

A caller is a process, and so is the actor that it calls. A result is timed from
the call until the caller has the tensor; the actor holds it and keeps it. Since
its pages may be those of the other process until they are written to, it is
also timed until all of it has been read once. An argument is timed until the
method has returned; the caller keeps the tensor. What is lent (ReadOnly) is
sent from where it lies, like the slices beside it; else the sender makes a
copy, because it may write to the tensor before it has been sent. A reader sums a tensor that
another process has put, as ReadOnly<at::Tensor>.

The peers: a `bytes` field through generated gRPC stubs; the same message as
gRPC slices over the memory on one connection, copied into a buffer that is
kept; two halves side by side in frames of 4 MiB, over two connections, into such
a buffer; memcpy between warm buffers, and a sum over one.

  --mb=N       megabytes (10^6 bytes) of the tensor (default 100))";

constexpr char kCallerRole[] = "caller";

int64_t Bytes() { return int64_t{absl::GetFlag(FLAGS_mb)} * 1000000; }

// --- A caller, in a process of its own.

class Caller {
 public:
  static absl::StatusOr<std::unique_ptr<Caller>> Start() {
    const ActorOptions options = {.env = TransportOfThisProcess()};
    MR_ASSIGN_OR_RETURN(Cluster cluster, Cluster::Connect());
    MR_ASSIGN_OR_RETURN(ActorHandle<Holder> holder,
                        cluster.CreateActor<Holder>(options, Bytes()));
    return std::make_unique<Caller>(std::move(cluster), std::move(holder));
  }

  Caller(Cluster cluster, ActorHandle<Holder> holder)
      : cluster_(std::move(cluster)),
        holder_(std::move(holder)),
        tensor_(PatternTensor(Bytes())) {}

  // and_read: until all of it has been read once.
  absl::StatusOr<double> Result(bool and_read) {
    const absl::Time start = absl::Now();
    MR_ASSIGN_OR_RETURN(const at::Tensor tensor,
                        holder_.Call<&Holder::Get>().Get());
    if (and_read) sum_ += Sum(tensor.data_ptr<float>(), tensor.numel());
    const double seconds = SecondsSince(start);
    MR_RETURN_IF_ERROR(CheckResult(tensor));
    return seconds;
  }

  absl::StatusOr<double> LentResult() {
    const absl::Time start = absl::Now();
    MR_ASSIGN_OR_RETURN(const ReadOnlyTensor tensor,
                        holder_.Call<&Holder::Lend>().Get());
    const double seconds = SecondsSince(start);
    MR_RETURN_IF_ERROR(CheckResult(tensor.value));
    return seconds;
  }

  absl::StatusOr<double> Argument(bool lent) {
    const absl::Time start = absl::Now();
    const absl::Status status =
        lent ? holder_.Call<&Holder::SetLent>(ReadOnlyTensor{tensor_})
                   .Get()
                   .status()
             : holder_.Call<&Holder::Set>(tensor_).Get().status();
    const double seconds = SecondsSince(start);
    MR_RETURN_IF_ERROR(status);
    MR_RETURN_IF_ERROR(holder_.Call<&Holder::CheckReceived>(Bytes()).Get());
    return seconds;
  }

  absl::StatusOr<ReadReport> Read() {
    if (put_.state() == nullptr) put_ = cluster_.Put(ReadOnlyTensor{tensor_});
    MR_ASSIGN_OR_RETURN(const ReadReport report,
                        holder_.Call<&Holder::Read>(put_).Get());
    if (report.sum != Sum(tensor_.data_ptr<float>(), tensor_.numel())) {
      return absl::InternalError("the reader has read other values");
    }
    return report;
  }

  absl::StatusOr<std::string> Answer(const std::string& command) {
    if (command == "copied") {
      MR_ASSIGN_OR_RETURN(const ReadReport report, Read());
      return absl::StrCat(report.copied ? Bytes() : 0);
    }
    absl::StatusOr<double> seconds = absl::InvalidArgumentError(command);
    if (command == "result") seconds = Result(/*and_read=*/false);
    if (command == "result-read") seconds = Result(/*and_read=*/true);
    if (command == "result-lent") seconds = LentResult();
    if (command == "argument") seconds = Argument(/*lent=*/false);
    if (command == "argument-lent") seconds = Argument(/*lent=*/true);
    if (command == "read") {
      MR_ASSIGN_OR_RETURN(const ReadReport report, Read());
      seconds = report.seconds;
    }
    if (!seconds.ok()) return seconds.status();
    return absl::StrCat(*seconds);
  }

 private:
  static absl::Status CheckResult(const at::Tensor& tensor) {
    MR_RETURN_IF_ERROR(CheckTensor(tensor, Bytes()));
    if (UsesOnlyTcp() && IsShared(tensor.data_ptr())) {
      return absl::InternalError("it came through shared memory, not TCP");
    }
    return absl::OkStatus();
  }

  const Cluster cluster_;
  const ActorHandle<Holder> holder_;
  const at::Tensor tensor_;
  double sum_ = 0;
  ObjectRef<ReadOnlyTensor> put_;
};

int RunCaller() {
  const absl::StatusOr<std::unique_ptr<Caller>> caller = Caller::Start();
  return ServeCommands(
      [&](const std::string& command) -> absl::StatusOr<std::string> {
        if (!caller.ok()) return caller.status();
        return (*caller)->Answer(command);
      });
}

// --- The benchmark.

absl::StatusOr<std::unique_ptr<Child>> StartCaller(
    const Cluster& cluster, const Child::Environment& environment) {
  return Child::Start(kCallerRole,
                      {absl::StrCat("--address=", cluster.address()),
                       absl::StrCat("--mb=", absl::GetFlag(FLAGS_mb))},
                      environment);
}

// A row of GB/s; each from the seconds of all bytes.
Row Bandwidth(const std::string& what, double ours, const std::string& name,
              std::optional<double> peer, std::optional<double> at_least) {
  const double gigabytes = static_cast<double>(Bytes()) / 1e9;
  Row row{.what = what,
          .unit = "GB/s",
          .ours = gigabytes / ours,
          .peer_name = name,
          .at_least = at_least};
  if (peer.has_value()) row.peer = gigabytes / *peer;
  return row;
}

absl::Status Measure(Table* table) {
  const int64_t bytes = Bytes();
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcBulk> raw, GrpcBulk::Start());
  MR_ASSIGN_OR_RETURN(const Cluster cluster,
                      Cluster::Connect({.embedded_num_cpus = 8}));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Child> local,
                      StartCaller(cluster, {}));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Child> tcp,
                      StartCaller(cluster, TcpEnvironment()));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<Child> ray, StartRay());
  WarmMemory memory(bytes);

  std::vector<Measurement> measurements = {
      {"result", [&] { return local->AskNumber("result"); }},
      {"argument", [&] { return local->AskNumber("argument"); }},
      {"reader", [&] { return local->AskNumber("read"); }},
      {"result through TCP", [&] { return tcp->AskNumber("result"); }},
      {"argument through TCP", [&] { return tcp->AskNumber("argument"); }},
      {"stubs, download", [&] { return raw->StubsDownload(bytes); }},
      {"stubs, upload", [&] { return raw->StubsUpload(bytes); }},
      {"slices, download", [&] { return raw->SlicesDownload(bytes); }},
      {"slices, upload", [&] { return raw->SlicesUpload(bytes); }},
      {"memcpy", [&] { return memory.Copy(); }},
      {"sum", [&] { return memory.Read(); }},
      {"result and sum", [&] { return local->AskNumber("result-read"); }},
      {"memcpy and sum", [&] { return memory.Copy() + memory.Read(); }},
  };
  measurements.push_back(
      {"ranges, download", [&] { return raw->RangesDownload(bytes); }});
  measurements.push_back({"lent result through TCP",
                          [&] { return tcp->AskNumber("result-lent"); }});
  measurements.push_back({"lent argument through TCP",
                          [&] { return tcp->AskNumber("argument-lent"); }});
  if (ray != nullptr) {
    measurements.push_back(
        {"Ray",
         [&] { return ray->AskNumber(absl::StrCat("result ", bytes)); }});
  }
  MR_ASSIGN_OR_RETURN(const std::vector<double> medians,
                      MeasureInTurn(measurements, table));
  MR_ASSIGN_OR_RETURN(const double copied, local->AskNumber("copied"));

  const std::string stubs = "generated stubs, TCP";
  const std::string slices = "slices, one TCP connection";
  const std::string ranges = "frames, two TCP connections";
  const std::string copy = "memcpy, warm";
  table->Add(Bandwidth("result, same node", medians[0], stubs, medians[5], 10));
  table->Add(Bandwidth("result, same node", medians[0], copy, medians[9], 0.4));
  table->Add(Bandwidth("result, same node, and read once", medians[11],
                       "memcpy and sum, warm", medians[12], 0.4));
  table->Add({.what = "read only, same node: copied",
              .unit = "MB",
              .ours = copied / 1e6,
              .at_most = 0});
  table->Add(Bandwidth("read only, same node", medians[2], "sum, warm",
                       medians[10], {}));
  table->Add(
      Bandwidth("argument, same node", medians[1], stubs, medians[6], {}));
  table->Add(
      Bandwidth("argument, same node", medians[1], copy, medians[9], {}));
  table->Add(Bandwidth("lent result, through TCP", medians[14], slices,
                       medians[7], 1.2));
  table->Add(Bandwidth("lent result, through TCP", medians[14], ranges,
                       medians[13], {}));
  table->Add(
      Bandwidth("result, through TCP", medians[3], slices, medians[7], 1.2));
  table->Add(Bandwidth("lent argument, through TCP", medians[15], slices,
                       medians[8], 1.2));
  table->Add(
      Bandwidth("argument, through TCP", medians[4], slices, medians[8], 1.2));
  table->Add(Bandwidth(
      "result, same node", medians[0], ray == nullptr ? kNoRay : "Ray",
      ray == nullptr ? std::nullopt : std::optional<double>(medians[16]), {}));
  return absl::OkStatus();
}

}  // namespace
}  // namespace miniray::bench

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  namespace bench = miniray::bench;
  return bench::Main(argc, argv,
                     {.name = "tensors",
                      .help = bench::kHelp,
                      .measure = bench::Measure,
                      .roles = {{bench::kCallerRole, bench::RunCaller},
                                {bench::kGrpcBulkRole, bench::ServeGrpcBulk}}});
}
