#include "runtime/timeline/timeline_runs.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "runtime/timeline/clocks.h"

namespace miniray {
namespace {

constexpr size_t kMaxRuns = 20;

// When a run began and ended, in milliseconds by the head's clock.
int64_t StartOf(const v1::RunInfo& run, const Clocks& clocks) {
  return Minus(run.start_unix_ms(), clocks.OfHost(run.hostname()) / 1000);
}

int64_t EndOf(const v1::RunInfo& run, const Clocks& clocks) {
  if (run.end_unix_ms() == 0) return std::numeric_limits<int64_t>::max();
  // Of one that is lost the head itself said so.
  if (run.state() == v1::RUN_STATE_LOST) return run.end_unix_ms();
  return Minus(run.end_unix_ms(), clocks.OfHost(run.hostname()) / 1000);
}

}  // namespace

std::vector<std::string> RunsOfTimeline(const v1::ListRunsResponse& list,
                                        const v1::GetCallRecordsResponse& calls,
                                        const std::string& job) {
  const Clocks clocks(calls.clocks());
  int64_t first_ms = std::numeric_limits<int64_t>::max();
  int64_t last_ms = std::numeric_limits<int64_t>::min();
  for (const v1::CallRecord& call : calls.records()) {
    const int64_t shift = clocks.OfNode(call.node_id());
    first_ms = std::min(first_ms, Minus(call.start_unix_us(), shift) / 1000);
    last_ms = std::max(last_ms, Minus(call.end_unix_us(), shift) / 1000);
  }
  std::vector<std::string> ids;
  for (const v1::RunInfo& run : list.runs()) {
    if (ids.size() == kMaxRuns) break;
    if (!job.empty()) {
      if (run.job_id() == job) ids.push_back(run.run_id());
      continue;
    }
    if (calls.records().empty()) return {run.run_id()};
    if (StartOf(run, clocks) <= last_ms && EndOf(run, clocks) >= first_ms) {
      ids.push_back(run.run_id());
    }
  }
  return ids;
}

}  // namespace miniray
