// chaos: a cluster of real processes under random faults, with callers who keep
// books or a training that must come to its end. See tests/chaos/README.md.

#include <glog/logging.h>
#include <grpc/support/log.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "tools/havoc/conductor.h"
#include "tools/havoc/havoc_cluster.h"
#include "tools/havoc/network.h"
#include "tools/havoc/plan.h"
#include "tools/havoc/process.h"
#include "tools/havoc/train_scenario.h"
#include "tools/havoc/workload.h"

namespace miniray::havoc {
namespace {

constexpr char kUsage[] =
    R"(Lets a cluster of real processes (a head, 3 nodes, 8 actors) run under random
faults while callers keep books of every call, and checks the books afterwards;
or kills a process of a training, once a run, and checks what it comes to.

  chaos [--scenario actors] [--seed N] [--seconds S] [--lease S] [--network auto|namespaces|loopback]
        [--verbose] [--keep] [--sabotage forget|orphan]
  chaos --scenario train [--seed N] [--runs N] [--lease S] [--keep]
        [--sabotage forget|orphan]

  --seed N      repeats a run (default: another one each time; it is printed)
  --runs N      trainings, with the seeds N, N + 1, ... (default 50)
  --seconds S   how long faults come (default 60)
  --lease S     the head's lease; pauses and cuts are drawn around it (default 3)
  --network     namespaces (root): links are cut as well; loopback: not
                (default auto: namespaces where they can be made)
  --verbose     shows every call that failed
  --keep        keeps the logs of a run that went well
  --sabotage    breaks something on purpose, to see that it is noticed: actors
                forget their state; a process is left behind

Exit code 0: every call had one outcome, no acknowledged call was lost, nothing
ran twice that must not, everything healed, and nothing is left over. In a
training: all epochs, each once, and the loss of an undisturbed one, or the right
error; and nothing is left over.

Examples:
  bazel-bin/tools/chaos --seed 7 --seconds 60
  bazel-bin/tools/chaos --seconds 10 --lease 1 --network loopback
  bazel-bin/tools/chaos --scenario train --seed 1
)";

struct Flags {
  uint64_t seed = 0;
  bool train = false;  // The scenario.
  int runs = 50;
  double seconds = 60;
  double lease = 3;
  Network::Kind network = Network::Kind::kAuto;
  bool verbose = false;
  bool keep = false;
  std::string sabotage;
};

constexpr int kNodes = 3;
constexpr int kActors = 8;
constexpr double kActorCpus = 6;  // Of a node.
// Of a node in a training with three workers: two nodes have room for them.
constexpr double kTrainCpus = 2;
// After everything was healed.
constexpr absl::Duration kHealTimeout = absl::Seconds(90);
constexpr absl::Duration kLeftoverTimeout = absl::Seconds(20);

volatile sig_atomic_t interrupted = 0;

// Returns nothing if the command line is wrong.
std::optional<Flags> ReadFlags(int argc, char** argv) {
  Flags flags;
  flags.seed = absl::ToUnixMicros(absl::Now()) % 1000000;
  for (int i = 1; i < argc; ++i) {
    absl::string_view arg = argv[i];
    if (arg == "--verbose" || arg == "--keep") {
      (arg == "--keep" ? flags.keep : flags.verbose) = true;
      continue;
    }
    std::string name(arg.substr(0, arg.find('='))), value;
    if (name.size() < arg.size()) {
      value = std::string(arg.substr(name.size() + 1));
    } else if (i + 1 < argc) {
      value = argv[++i];
    }
    bool ok = false;
    if (name == "--seed") ok = absl::SimpleAtoi(value, &flags.seed);
    if (name == "--scenario") {
      ok = value == "actors" || value == "train";
      flags.train = value == "train";
    }
    if (name == "--runs") {
      ok = absl::SimpleAtoi(value, &flags.runs) && flags.runs > 0;
    }
    if (name == "--seconds") {
      ok = absl::SimpleAtod(value, &flags.seconds) && flags.seconds > 0 &&
           flags.seconds <= 86400;
    }
    if (name == "--lease") {
      ok = absl::SimpleAtod(value, &flags.lease) && flags.lease >= 0.2 &&
           flags.lease <= 60;
    }
    if (name == "--network") {
      ok = true;
      if (value == "auto") {
        flags.network = Network::Kind::kAuto;
      } else if (value == "namespaces") {
        flags.network = Network::Kind::kNamespaces;
      } else if (value == "loopback") {
        flags.network = Network::Kind::kLoopback;
      } else {
        ok = false;
      }
    }
    if (name == "--sabotage") {
      ok = value == "forget" || value == "orphan";
      flags.sabotage = value;
    }
    if (!ok) {
      fprintf(stderr, "chaos: '%s%s%s' is not understood; see chaos --help\n",
              name.c_str(), value.empty() ? "" : " ", value.c_str());
      return std::nullopt;
    }
  }
  return flags;
}

// Segments of shared memory that Mini-Ray made.
std::vector<std::string> Segments() {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/dev/shm", error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.rfind("miniray", 0) == 0) names.push_back(name);
  }
  return names;
}

absl::StatusOr<std::string> FindMiniray() {
  if (const char* path = std::getenv("MINIRAY_BIN")) return std::string(path);
  MR_ASSIGN_OR_RETURN(const std::string self, ExecutablePath());
  const std::string path =
      (std::filesystem::path(self).parent_path() / "miniray").string();
  if (access(path.c_str(), X_OK) == 0) return path;
  return absl::FailedPreconditionError(
      absl::StrCat("there is no program ", path,
                   "; build it (bazel build //tools:miniray), or set "
                   "MINIRAY_BIN to its path"));
}

class Run {
 public:
  explicit Run(const Flags& flags)
      : flags_(flags), mark_(NewId("chaos")), token_(NewId("token")) {}

  absl::Status Prepare() {
    MR_ASSIGN_OR_RETURN(miniray_, FindMiniray());
    folder_ = absl::StrCat(TemporaryFolder(), "/", mark_);
    MR_RETURN_IF_ERROR(MakeDirectories(folder_, 0700));
    // The driver's own traces: this process is one of the machines.
    setenv("MINIRAY_RUNTIME_DIR", (folder_ + "/driver").c_str(), 1);
    MR_ASSIGN_OR_RETURN(
        network_, Network::Create(
                      flags_.train ? Network::Kind::kLoopback : flags_.network,
                      2 + kNodes));
    if (!network_->Enter(kDriverMachine)) {
      return ErrnoStatus(errno, "enter the driver's namespace");
    }
    return absl::OkStatus();
  }

  // What happened while it ran; the rest of the checks follow in any case.
  absl::Status PlayActors() {
    return Play(kActorCpus,
                [this](HavocCluster* cluster, const Cluster& driver) {
                  return PlayWith(cluster, driver);
                });
  }
  absl::StatusOr<TrainOutcome> PlayTraining(const TrainPlan& plan,
                                            const TrainLosses* undisturbed) {
    TrainOutcome outcome;
    MR_RETURN_IF_ERROR(
        Play(kTrainCpus, [&](HavocCluster* cluster, const Cluster& driver) {
          absl::StatusOr<TrainOutcome> result =
              RunTraining(plan,
                          {.folder = folder_,
                           .undisturbed = undisturbed,
                           .forget = flags_.sabotage == "forget"},
                          cluster, driver);
          if (result.ok()) outcome = *std::move(result);
          return result.status();
        }));
    return outcome;
  }

  absl::Status CheckLeftovers() {
    std::string left;
    if (!WaitUntil(kLeftoverTimeout,
                   [this] { return MarkedProcesses(mark_).empty(); })) {
      for (const pid_t pid : MarkedProcesses(mark_)) {
        absl::StrAppend(&left, "\n  process ", DescribeProcess(pid));
        kill(pid, SIGKILL);
      }
    }
    for (const std::string& name : Segments()) {
      if (std::find(segments_.begin(), segments_.end(), name) ==
          segments_.end()) {
        absl::StrAppend(&left, "\n  shared memory /dev/shm/", name);
      }
    }
    if (const absl::Status status = network_->Remove(); !status.ok()) {
      absl::StrAppend(&left, "\n  ", status.message());
    }
    if (left.empty()) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("left over:", left));
  }

  const std::string& folder() const { return folder_; }
  void RemoveFolder() const {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

 private:
  absl::Status Play(
      double cpus,
      const std::function<absl::Status(HavocCluster*, const Cluster&)>& play) {
    HavocCluster cluster({.miniray = miniray_,
                          .folder = folder_,
                          .mark = mark_,
                          .token = token_,
                          .nodes = kNodes,
                          .cpus = cpus,
                          .lease = absl::Seconds(flags_.lease)},
                         network_.get());
    MR_RETURN_IF_ERROR(cluster.StartHead());
    for (int i = 0; i < kNodes; ++i) MR_RETURN_IF_ERROR(cluster.StartNode(i));
    MR_ASSIGN_OR_RETURN(
        Cluster driver,
        Cluster::Connect({.address = cluster.address(), .token = token_}));
    absl::Status status = play(&cluster, driver);
    driver.Shutdown();
    if (flags_.sabotage == "orphan") {
      MR_RETURN_IF_ERROR(Spawn({"/bin/sleep", "600"}, {{kMarkVariable, mark_}},
                               "/dev/null", [] { return true; })
                             .status());
    }
    const absl::Status stopped = cluster.Stop();
    return status.ok() ? stopped : status;
  }

  static std::string TemporaryFolder() {
    for (const char* name : {"TEST_TMPDIR", "TMPDIR"}) {
      if (const char* value = std::getenv(name)) return value;
    }
    return "/tmp";
  }

  absl::Status PlayWith(HavocCluster* cluster, const Cluster& driver) {
    Workload::Options work;
    work.actors = kActors;
    work.forget = flags_.sabotage == "forget";
    if (flags_.verbose) {
      work.on_failure = [](const std::string& what) {
        printf("          %s\n", what.c_str());
      };
    }
    Workload workload(driver, work);
    MR_RETURN_IF_ERROR(workload.CreateActors());
    const std::vector<Fault> plan =
        MakePlan({.seed = flags_.seed,
                  .length = absl::Seconds(flags_.seconds),
                  .lease = absl::Seconds(flags_.lease),
                  .actors = kActors,
                  .nodes = kNodes,
                  .can_cut = network_->can_cut()});
    printf("seed %llu, %.0f s, %zu faults, lease %.1f s; %s\nlogs in %s\n",
           static_cast<unsigned long long>(flags_.seed), flags_.seconds,
           plan.size(), flags_.lease, network_->Describe().c_str(),
           folder_.c_str());
    fflush(stdout);
    workload.StartCalls();
    Conductor conductor({.mark = mark_,
                         .log =
                             [](const std::string& line) {
                               printf("%s\n", line.c_str());
                               fflush(stdout);
                             },
                         .interrupted = [] { return interrupted != 0; }},
                        cluster, network_.get(), &workload);
    absl::Status status = conductor.Run(plan, absl::Seconds(flags_.seconds));
    const absl::Time healed = absl::Now();
    auto watch = [&conductor] { return conductor.CheckProcesses(); };
    if (status.ok()) status = workload.StopCalls(kHealTimeout, watch);
    if (status.ok()) status = workload.CheckCounts(kHealTimeout, watch);
    printf("faults: %s\n%s; all actors answered %s after the end\n",
           conductor.Summary().c_str(), workload.Summary().c_str(),
           absl::FormatDuration(
               absl::Trunc(absl::Now() - healed, absl::Milliseconds(1)))
               .c_str());
    return status;
  }

  const Flags flags_;
  const std::string mark_;
  const std::string token_;
  const std::vector<std::string> segments_ = Segments();
  std::string miniray_;
  std::string folder_;
  std::unique_ptr<Network> network_;
};

int RunActors(const Flags& flags) {
  Run run(flags);
  absl::Status status = run.Prepare();
  if (status.ok()) {
    status = run.PlayActors();
    const absl::Status leftovers = run.CheckLeftovers();
    if (status.ok()) status = leftovers;
  }
  if (status.ok()) {
    printf("all held (seed %llu)\n",
           static_cast<unsigned long long>(flags.seed));
    if (!flags.keep) run.RemoveFolder();
    return 0;
  }
  printf("FAILED with seed %llu; logs are in %s\n  %s\n",
         static_cast<unsigned long long>(flags.seed), run.folder().c_str(),
         std::string(status.message()).c_str());
  return 1;
}

// One training on a cluster of its own; prints its line.
absl::StatusOr<TrainOutcome> TrainOnce(const Flags& flags,
                                       const std::string& title,
                                       const TrainPlan& plan,
                                       const TrainLosses* undisturbed) {
  const absl::Time start = absl::Now();
  Run run(flags);
  MR_RETURN_IF_ERROR(run.Prepare());
  absl::StatusOr<TrainOutcome> outcome = run.PlayTraining(plan, undisturbed);
  const absl::Status leftovers = run.CheckLeftovers();
  if (outcome.ok() && !leftovers.ok()) outcome = leftovers;
  printf("%s: %s: %s (%.1f s)\n", title.c_str(), Describe(plan).c_str(),
         outcome.ok() ? outcome->text.c_str()
                      : absl::StrCat("FAILED: ", outcome.status().message(),
                                     "; logs are in ", run.folder())
                            .c_str(),
         absl::ToDoubleSeconds(absl::Now() - start));
  fflush(stdout);
  if (outcome.ok() && !flags.keep) run.RemoveFolder();
  return outcome;
}

int RunTrainings(const Flags& flags) {
  const absl::StatusOr<TrainOutcome> undisturbed =
      TrainOnce(flags, "first", TrainPlan(), nullptr);
  if (!undisturbed.ok()) {
    printf("FAILED: %s\n", std::string(undisturbed.status().message()).c_str());
    return 1;
  }
  std::vector<uint64_t> failed;
  int done = 0;
  for (; done < flags.runs && interrupted == 0; ++done) {
    const uint64_t seed = flags.seed + static_cast<uint64_t>(done);
    if (!TrainOnce(flags, absl::StrCat("seed ", seed), MakeTrainPlan(seed),
                   &undisturbed->losses)
             .ok()) {
      failed.push_back(seed);
    }
  }
  if (done < flags.runs) printf("interrupted\n");
  if (failed.empty() && done == flags.runs) {
    printf("all held: %d of %d runs\n", done, done);
    return 0;
  }
  printf("FAILED: %zu of %d runs; seeds: %s (repeat: --seed N --runs 1)\n",
         failed.size(), done, absl::StrJoin(failed, " ").c_str());
  return 1;
}

int Main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (absl::string_view(argv[i]) == "--help") {
      printf("%s", kUsage);
      return 0;
    }
  }
  const std::optional<Flags> flags = ReadFlags(argc, argv);
  if (!flags.has_value()) return 2;
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  FLAGS_minloglevel = google::GLOG_ERROR;
  gpr_set_log_verbosity(
      static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1));
  for (const int signal : {SIGINT, SIGTERM}) {
    ::signal(signal, [](int) { interrupted = 1; });
  }
  return flags->train ? RunTrainings(*flags) : RunActors(*flags);
}

}  // namespace
}  // namespace miniray::havoc

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  return miniray::havoc::Main(argc, argv);
}
