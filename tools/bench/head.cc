// How much one head bears: simulated worker daemons and actors against a real
// head in a process of its own, over gRPC on loopback, with everything written
// to disk as usual. The daemons answer an order to start an actor at once.
//
//   bazel-bin/tools/bench/head                    1,000 daemons, 10,000 actors
//   bazel-bin/tools/bench/head --json --check     exits 1 if a target is missed

#include <fcntl.h>
#include <glog/logging.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/head.pb.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "runtime/head/head_server.h"
#include "runtime/worker/lease_keeper.h"
#include "tools/bench/simulated_cluster.h"

ABSL_FLAG(int, daemons, 1000, "Simulated worker daemons, a connection each.");
ABSL_FLAG(int, actors, 10000, "Actors that live at once.");
ABSL_FLAG(double, seconds, 10, "How long actors are placed.");
ABSL_FLAG(int, in_flight, 256, "Creations without an answer.");
ABSL_FLAG(int, lists, 200, "How often the actors are listed.");
ABSL_FLAG(bool, json, false, "Print JSON.");
ABSL_FLAG(bool, check, false, "Exit 1 if a target is missed.");
ABSL_FLAG(double, slack, 1,
          "What --check allows a machine that does other work too: targets are "
          "missed by more than this factor.");

namespace miniray::bench {
namespace {

constexpr char kHelp[] =
    R"(Measures one head with simulated worker daemons and actors.

  head [FLAGS]

The head is real, in a process of its own, and writes to disk as usual; the
daemons, all in this process, are connections that answer an order to start an
actor at once. Placements per second, the head's CPU for each, and for the
leases of the nodes; the time of a list of all actors; the head's memory.

  --daemons=N    simulated daemons (default 1000)
  --actors=N     actors that live at once (default 10000)
  --seconds=S    how long actors are placed (default 10)
  --in_flight=N  creations without an answer (default 256)
  --lists=N      how often the actors are listed (default 200)
  --json         print JSON instead of a table
  --check        exit 1 if a target is missed
  --slack=F      ... by more than this factor (default 1), on a machine that does
                 other work too
  --help         this text
)";

constexpr double kMinPlacementsPerSecond = 5000;
constexpr double kMaxListSeconds = 0.2;
constexpr double kMaxLeaseShare = 0.1;

// --- The head, in a process of its own.

class HeadProcess {
 public:
  // Call it before the process uses gRPC or has threads.
  static absl::StatusOr<HeadProcess> Start(const std::string& folder) {
    int ready[2], stop[2];
    if (pipe2(ready, O_CLOEXEC) != 0 || pipe2(stop, O_CLOEXEC) != 0) {
      return ErrnoStatus(errno, "pipe");
    }
    HeadProcess process;
    process.pid_ = fork();
    if (process.pid_ < 0) return ErrnoStatus(errno, "fork");
    if (process.pid_ == 0) {
      close(ready[0]);
      close(stop[1]);
      _exit(Run(folder, ready[1], stop[0]));
    }
    close(ready[1]);
    close(stop[0]);
    process.stop_ = ScopedFd(stop[1]);
    const ScopedFd from(ready[0]);
    if (read(from.get(), &process.port_, sizeof(process.port_)) !=
        sizeof(process.port_)) {
      return absl::InternalError("the head did not start");
    }
    return process;
  }

  HeadProcess(HeadProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)),
        port_(other.port_),
        stop_(std::move(other.stop_)) {}
  ~HeadProcess() {
    if (pid_ <= 0) return;
    stop_.reset();
    waitpid(pid_, nullptr, 0);
  }

  int port() const { return port_; }

  absl::Duration CpuTime() const {
    std::ifstream file(absl::StrCat("/proc/", pid_, "/stat"));
    std::string text((std::istreambuf_iterator<char>(file)), {});
    // After the name, which may contain anything.
    std::istringstream fields(text.substr(text.rfind(')') + 2));
    std::string skipped;
    for (int i = 3; i < 14; ++i) fields >> skipped;
    int64_t user = 0, system = 0;
    fields >> user >> system;
    return absl::Seconds(static_cast<double>(user + system) /
                         static_cast<double>(sysconf(_SC_CLK_TCK)));
  }

  // Bytes; `key` as in /proc/<pid>/status.
  int64_t Memory(const std::string& key) const {
    std::ifstream file(absl::StrCat("/proc/", pid_, "/status"));
    std::string line;
    while (std::getline(file, line)) {
      if (line.rfind(key + ":", 0) == 0) {
        return std::stoll(line.substr(key.size() + 1)) * 1024;
      }
    }
    return 0;
  }

 private:
  HeadProcess() = default;

  static int Run(const std::string& folder, int ready, int stop) {
    signal(SIGINT, SIG_IGN);  // Ends with the other process.
    // Not a line for each daemon that goes at the end.
    FLAGS_minloglevel = google::GLOG_ERROR;
    auto head = HeadServer::Start({.state_dir = folder + "/state"});
    if (!head.ok()) {
      std::cerr << head.status() << "\n";
      return 1;
    }
    const int port = (*head)->port();
    if (write(ready, &port, sizeof(port)) != sizeof(port)) return 1;
    char unused;
    while (read(stop, &unused, 1) < 0 && errno == EINTR) {
    }
    (*head)->Shutdown(HeadServer::End::kFinal);
    return 0;
  }

  pid_t pid_ = 0;
  int port_ = 0;
  ScopedFd stop_;
};

struct Results {
  double placements_per_second = 0;
  double placement_cpu_us = 0;  // Of the head, each.
  double lease_share = 0;       // Of a core.
  double list_p50_ms = 0;
  double list_p99_ms = 0;
  double memory_mb = 0;
};

absl::Status Measure(HeadProcess* head, SimulatedDaemons* daemons,
                     SimulatedDriver* driver, Results* results) {
  MR_RETURN_IF_ERROR(daemons->Attach());
  MR_RETURN_IF_ERROR(driver->Upload());

  // What the leases alone cost, once each daemon has renewed its own: the first
  // time opens a stream.
  absl::SleepFor(kSimulatedLease * LeaseKeeper::kPeriod);
  const double quiet = std::min(6.0, absl::GetFlag(FLAGS_seconds));
  absl::Duration cpu = head->CpuTime();
  absl::SleepFor(absl::Seconds(quiet));
  results->lease_share = absl::ToDoubleSeconds(head->CpuTime() - cpu) / quiet;

  const int count = absl::GetFlag(FLAGS_actors);
  absl::Duration placing, placing_cpu;
  int64_t placed = 0;
  while (true) {
    const absl::Time start = absl::Now();
    cpu = head->CpuTime();
    MR_RETURN_IF_ERROR(driver->Create(count));
    placed += count;
    while (daemons->actors_started() < placed &&
           absl::Now() - start < kSimulationPatience) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    MR_RETURN_IF_ERROR(driver->WaitUntilUp());
    placing += absl::Now() - start;
    placing_cpu += head->CpuTime() - cpu;
    MR_RETURN_IF_ERROR(driver->ExpectAlive(count));
    if (placing >= absl::Seconds(absl::GetFlag(FLAGS_seconds))) break;
    MR_RETURN_IF_ERROR(driver->KillAll());
    MR_RETURN_IF_ERROR(driver->WaitUntilIdle());
  }
  results->placements_per_second =
      static_cast<double>(placed) / absl::ToDoubleSeconds(placing);
  results->placement_cpu_us =
      absl::ToDoubleMicroseconds(placing_cpu) / static_cast<double>(placed);
  results->memory_mb = static_cast<double>(head->Memory("VmRSS")) / 1e6;

  std::vector<double> times;
  for (int i = 0; i < absl::GetFlag(FLAGS_lists); ++i) {
    const absl::Time start = absl::Now();
    MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse state,
                        driver->List(v1::TABLE_ACTORS));
    times.push_back(absl::ToDoubleMilliseconds(absl::Now() - start));
    if (state.actors_size() < count) {
      return absl::InternalError("actors are missing in the list");
    }
  }
  std::sort(times.begin(), times.end());
  if (times.empty()) return absl::OkStatus();
  results->list_p50_ms = times[times.size() / 2];
  results->list_p99_ms =
      times[std::min(times.size() - 1, times.size() * 99 / 100)];
  return absl::OkStatus();
}

void Print(const Results& results) {
  if (absl::GetFlag(FLAGS_json)) {
    std::cout << nlohmann::json{{"daemons", absl::GetFlag(FLAGS_daemons)},
                                {"actors", absl::GetFlag(FLAGS_actors)},
                                {"placements_per_second",
                                 results.placements_per_second},
                                {"head_cpu_us_per_placement",
                                 results.placement_cpu_us},
                                {"lease_share_of_a_core", results.lease_share},
                                {"list_actors_p50_ms", results.list_p50_ms},
                                {"list_actors_p99_ms", results.list_p99_ms},
                                {"head_memory_mb", results.memory_mb}}
                     .dump(2)
              << "\n";
    return;
  }
  std::cout << absl::StreamFormat(
      "%d daemons, %d actors on one head\n"
      "  placements            %8.0f /s   (target: at least %.0f)\n"
      "  head CPU, each        %8.1f us\n"
      "  upkeep of the leases  %8.1f %%    of a core (target: at most %.0f)\n"
      "  list of all actors    %8.1f ms   p50, %.1f ms p99 (target: at most "
      "%.0f)\n"
      "  memory of the head    %8.0f MB\n",
      absl::GetFlag(FLAGS_daemons), absl::GetFlag(FLAGS_actors),
      results.placements_per_second, kMinPlacementsPerSecond,
      results.placement_cpu_us, results.lease_share * 100, kMaxLeaseShare * 100,
      results.list_p50_ms, results.list_p99_ms, kMaxListSeconds * 1000,
      results.memory_mb);
}

// One that leaves nothing to measure; null: none.
const char* WrongFlag() {
  if (absl::GetFlag(FLAGS_daemons) < 1) return "daemons";
  if (absl::GetFlag(FLAGS_actors) < 1) return "actors";
  if (!(absl::GetFlag(FLAGS_seconds) > 0)) return "seconds";
  if (absl::GetFlag(FLAGS_in_flight) < 1) return "in_flight";
  if (absl::GetFlag(FLAGS_lists) < 1) return "lists";
  if (!(absl::GetFlag(FLAGS_slack) > 0)) return "slack";
  return nullptr;
}

// A line for each target that was missed; empty: none was.
std::string Missed(const Results& results) {
  const double slack = absl::GetFlag(FLAGS_slack);
  const double slowest = kMinPlacementsPerSecond / slack;
  const double longest_ms = kMaxListSeconds * 1000 * slack;
  const double most = kMaxLeaseShare * slack;
  std::string missed;
  if (results.placements_per_second < slowest) {
    absl::StrAppendFormat(&missed,
                          "head: missed: %.0f placements/s, at least %.0f\n",
                          results.placements_per_second, slowest);
  }
  if (results.list_p99_ms > longest_ms) {
    absl::StrAppendFormat(&missed,
                          "head: missed: list of all actors in %.1f ms (p99), "
                          "at most %.1f\n",
                          results.list_p99_ms, longest_ms);
  }
  if (results.lease_share > most) {
    absl::StrAppendFormat(&missed,
                          "head: missed: leases take %.1f %% of a core, at "
                          "most %.1f\n",
                          results.lease_share * 100, most * 100);
  }
  return missed;
}

int Main() {
  RaiseFileLimit();
  const absl::StatusOr<std::string> runtime = RuntimeDirectory();
  if (!runtime.ok()) {
    std::cerr << runtime.status() << "\n";
    return 2;
  }
  const std::string folder = absl::StrCat(*runtime, "/", NewId("bench-head"));
  Results results;
  absl::Status status = MakeDirectories(folder, 0700);
  if (status.ok()) {
    absl::StatusOr<HeadProcess> head = HeadProcess::Start(folder);
    status = head.status();
    if (head.ok()) {
      const std::string address = absl::StrCat("127.0.0.1:", head->port());
      SimulatedDaemons daemons(address, "", absl::GetFlag(FLAGS_daemons));
      SimulatedDriver driver(address, "", absl::GetFlag(FLAGS_in_flight));
      status = Measure(&*head, &daemons, &driver, &results);
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (!status.ok()) {
    std::cerr << "head: " << status << "\n";
    return 2;
  }
  Print(results);
  if (!absl::GetFlag(FLAGS_check)) return 0;
  const std::string missed = Missed(results);
  std::cerr << missed;
  return missed.empty() ? 0 : 1;
}

}  // namespace
}  // namespace miniray::bench

int main(int argc, char** argv) {
  // As every program of the runtime does; see miniray::Init.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  for (int i = 1; i < argc; ++i) {
    const absl::string_view word = argv[i];
    if (word == "--help" || word == "-h" || word == "-help") {
      std::cout << miniray::bench::kHelp;
      return 0;
    }
  }
  if (absl::ParseCommandLine(argc, argv).size() > 1) {
    std::cerr << "head: there are only flags; see --help\n";
    return 2;
  }
  if (const char* wrong = miniray::bench::WrongFlag(); wrong != nullptr) {
    std::cerr << "head: --" << wrong << " must be more than 0; see --help\n";
    return 2;
  }
  return miniray::bench::Main();
}
