// The frame of a benchmark program: flags, roles, output, exit code.

#ifndef MINIRAY_TOOLS_BENCH_BENCH_H_
#define MINIRAY_TOOLS_BENCH_BENCH_H_

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/bench/table.h"

namespace miniray::bench {

// What, in the environment of two processes of one machine, keeps them from
// using anything else than TCP between them.
std::vector<std::pair<std::string, std::string>> TcpEnvironment();
// Whether this process has it.
bool UsesOnlyTcp();
// What of it this process has: for ActorOptions::env, so that actors speak to
// it as it does to them.
std::map<std::string, std::string> TransportOfThisProcess();

struct Program {
  std::string name;
  std::string help;  // What it measures, and flags of its own.
  std::function<absl::Status(Table*)> measure;
  // What the program does when it was started with --role=NAME by itself;
  // returns the exit code.
  std::map<std::string, std::function<int()>> roles;
};

// The rest of main, after miniray::Init: reads --rounds, --json, --check and
// --help, measures, prints. Returns 0; with --check, 1 if a target was missed;
// 2 if it could not measure.
int Main(int argc, char** argv, const Program& program);

// MediansInTurn with --rounds; before each turn it waits, at most --wait_idle
// seconds, until nothing else runs on the machine. Tells the table.
absl::StatusOr<std::vector<double>> MeasureInTurn(
    const std::vector<Measurement>& measurements, Table* table);

double SecondsSince(absl::Time start);

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_BENCH_H_
