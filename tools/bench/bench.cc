#include "tools/bench/bench.h"

#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/api/miniray.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"

ABSL_FLAG(int, rounds, 7, "How often everything is measured, in turn.");
ABSL_FLAG(double, wait_idle, 5, "Seconds to wait for an idle machine.");
ABSL_FLAG(bool, json, false, "Print JSON.");
ABSL_FLAG(bool, check, false, "Exit 1 if a target is missed.");
ABSL_FLAG(std::string, role, "", "For the program itself: what a child does.");

namespace miniray::bench {
namespace {

constexpr char kTransportVariable[] = "MINIRAY_LOCAL_TRANSPORT";

constexpr char kCommonHelp[] = R"(
  --rounds=N   how often everything is measured, in turn (default 7)
  --wait_idle=S  before each round, wait so many seconds at most until the rest
               of the machine is idle (default 5)
  --json       print JSON instead of a table
  --check      exit 1 unless every row that has a target holds it
  --help       this text

Without --address=HOST:PORT or MINIRAY_ADDRESS, a cluster is started for it.
Everything in a row runs in this one run, on the same bytes. A busy machine
shows: figures move by a third and more.
)";

// Time that all processors together were not idle, and all time, in ticks.
struct Ticks {
  double busy = 0;
  double all = 0;
};
Ticks ReadTicks() {
  std::ifstream file("/proc/stat");
  std::string skipped;
  file >> skipped;
  Ticks ticks;
  // user nice system idle iowait irq softirq steal
  double value = 0;
  for (int i = 0; i < 8 && file >> value; ++i) {
    ticks.all += value;
    if (i != 3 && i != 4) ticks.busy += value;
  }
  return ticks;
}

// Waits until the machine was idle for a moment; returns whether it was.
bool AwaitIdle(absl::Duration timeout) {
  constexpr absl::Duration kMoment = absl::Milliseconds(300);
  constexpr double kIdle = 0.08;
  const absl::Time deadline = absl::Now() + timeout;
  while (absl::Now() + kMoment <= deadline) {
    const Ticks before = ReadTicks();
    absl::SleepFor(kMoment);
    const Ticks after = ReadTicks();
    if (after.busy - before.busy <= kIdle * (after.all - before.all)) {
      return true;
    }
  }
  return false;
}

// What the clusters of a benchmark leave on disk, gone at the end with it. Not
// where the cluster is somebody's, whose token is found in the usual place.
class PrivateRuntimeFolder {
 public:
  absl::Status Use() {
    if (!GivenAddress().empty() || std::getenv("MINIRAY_ADDRESS") != nullptr) {
      return absl::OkStatus();
    }
    MR_ASSIGN_OR_RETURN(const std::string usual, RuntimeDirectory());
    folder_ = absl::StrCat(usual, "/", NewId("bench"));
    setenv("MINIRAY_RUNTIME_DIR", folder_.c_str(), /*overwrite=*/1);
    return absl::OkStatus();
  }
  ~PrivateRuntimeFolder() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }

 private:
  std::string folder_;
};

bool AsksForHelp(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--help" || word == "-h" || word == "-help") return true;
  }
  return false;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> TcpEnvironment() {
  return {{kTransportVariable, "tcp"}, {"MINIRAY_SHARED_MEMORY_MB", "0"}};
}

bool UsesOnlyTcp() { return std::getenv(kTransportVariable) != nullptr; }

std::map<std::string, std::string> TransportOfThisProcess() {
  std::map<std::string, std::string> environment;
  for (const auto& [name, unused] : TcpEnvironment()) {
    if (const char* value = std::getenv(name.c_str())) {
      environment[name] = value;
    }
  }
  return environment;
}

int Main(int argc, char** argv, const Program& program) {
  if (AsksForHelp(argc, argv)) {
    std::cout << program.help << kCommonHelp;
    return 0;
  }
  if (absl::ParseCommandLine(argc, argv).size() > 1 ||
      absl::GetFlag(FLAGS_rounds) < 1) {
    std::cerr << program.name << ": --rounds must be 1 or more, and there are "
              << "only flags; see --help\n";
    return 2;
  }
  // A child that has gone is an error of write.
  signal(SIGPIPE, SIG_IGN);
  const std::string role = absl::GetFlag(FLAGS_role);
  if (!role.empty()) {
    const auto it = program.roles.find(role);
    return it == program.roles.end() ? 2 : it->second();
  }
  Table table(program.name);
  PrivateRuntimeFolder folder;
  absl::Status status = folder.Use();
  if (status.ok()) status = program.measure(&table);
  if (!status.ok()) {
    std::cerr << program.name << ": " << status << "\n";
    return 2;
  }
  std::cout << (absl::GetFlag(FLAGS_json) ? table.Json() + "\n" : table.Text());
  if (!absl::GetFlag(FLAGS_check) || table.Held()) return 0;
  std::cerr << program.name << ": a target was missed\n";
  return 1;
}

absl::StatusOr<std::vector<double>> MeasureInTurn(
    const std::vector<Measurement>& measurements, Table* table) {
  const int rounds = absl::GetFlag(FLAGS_rounds);
  int idle_rounds = 0;
  auto medians = MediansInTurn(rounds, measurements, [&] {
    idle_rounds += AwaitIdle(absl::Seconds(absl::GetFlag(FLAGS_wait_idle)));
  });
  table->SetRounds(rounds, idle_rounds);
  return medians;
}

double SecondsSince(absl::Time start) {
  return absl::ToDoubleSeconds(absl::Now() - start);
}

}  // namespace miniray::bench
