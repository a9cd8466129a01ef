#include "runtime/timeline/timeline_runs.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace miniray {
namespace {

constexpr size_t kMaxRuns = 20;

}  // namespace

std::vector<std::string> RunsOfTimeline(const v1::ListRunsResponse& list,
                                        const v1::GetCallRecordsResponse& calls,
                                        const std::string& job) {
  int64_t first_ms = std::numeric_limits<int64_t>::max();
  int64_t last_ms = std::numeric_limits<int64_t>::min();
  for (const v1::CallRecord& call : calls.records()) {
    first_ms = std::min(first_ms, call.start_unix_us() / 1000);
    last_ms = std::max(last_ms, call.end_unix_us() / 1000);
  }
  std::vector<std::string> ids;
  for (const v1::RunInfo& run : list.runs()) {
    if (ids.size() == kMaxRuns) break;
    if (!job.empty()) {
      if (run.job_id() == job) ids.push_back(run.run_id());
      continue;
    }
    if (calls.records().empty()) return {run.run_id()};
    const bool began = run.start_unix_ms() <= last_ms;
    const bool goes_on = run.end_unix_ms() == 0;
    if (began && (goes_on || run.end_unix_ms() >= first_ms)) {
      ids.push_back(run.run_id());
    }
  }
  return ids;
}

}  // namespace miniray
