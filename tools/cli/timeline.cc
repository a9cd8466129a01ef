#include "tools/cli/timeline.h"

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "runtime/timeline/timeline_json.h"
#include "runtime/timeline/timeline_runs.h"
#include "tools/cli/flags.h"
#include "tools/cli/head_client.h"
#include "tools/cli/table_format.h"
#include "tools/cli/timeline_table.h"

namespace miniray::cli {
namespace {

absl::StatusOr<v1::GetRunResponse> ReadRun(HeadClient* head,
                                           const std::string& run_id,
                                           absl::Time deadline) {
  v1::GetRunRequest request;
  request.set_run_id(run_id);
  request.set_max_points(2);  // The fewest: they are not looked at.
  request.set_with_spans(true);
  v1::GetRunResponse run;
  MR_RETURN_IF_ERROR(head->Call(&v1::RunCollector::Stub::GetRun, request, &run,
                                deadline - absl::Now()));
  return run;
}

// Those that belong to the calls.
absl::StatusOr<std::vector<v1::GetRunResponse>> ReadRuns(
    HeadClient* head, const v1::GetCallRecordsResponse& calls,
    absl::Time deadline) {
  v1::ListRunsResponse list;
  const absl::Status listed =
      head->Call(&v1::RunCollector::Stub::ListRuns, v1::ListRunsRequest(),
                 &list, deadline - absl::Now());
  std::vector<v1::GetRunResponse> runs;
  if (absl::IsUnimplemented(listed)) {
    std::cerr << "miniray: warning: " << OneLine(listed.message())
              << "; here are the calls alone" << std::endl;
    return runs;
  }
  MR_RETURN_IF_ERROR(listed);
  for (const std::string& id :
       RunsOfTimeline(list, calls, absl::GetFlag(FLAGS_job))) {
    absl::StatusOr<v1::GetRunResponse> run = ReadRun(head, id, deadline);
    if (absl::IsNotFound(run.status())) continue;  // It is gone meanwhile.
    MR_RETURN_IF_ERROR(run.status());
    runs.push_back(*std::move(run));
  }
  return runs;
}

}  // namespace

absl::Status CheckTimelineFlags(const CommandLine& line) {
  MR_RETURN_IF_ERROR(CheckHeadFlags(line));
  return CheckFormatFlag();
}

absl::Status RunTimeline(const CommandLine& line) {
  const absl::Time deadline = absl::Now() + TimeLimit(line, absl::Seconds(30));
  MR_ASSIGN_OR_RETURN(const auto head, HeadClient::FromFlags());
  std::string job = absl::GetFlag(FLAGS_job);
  const std::string run_id = absl::GetFlag(FLAGS_run);
  std::vector<v1::GetRunResponse> runs;
  if (!run_id.empty()) {
    MR_ASSIGN_OR_RETURN(v1::GetRunResponse run,
                        ReadRun(head.get(), run_id, deadline));
    if (job.empty()) job = run.run().job_id();
    runs.push_back(std::move(run));
  }
  v1::GetCallRecordsRequest request;
  request.set_job_id(job);
  v1::GetCallRecordsResponse calls;
  MR_RETURN_IF_ERROR(head->Call(&v1::Head::Stub::GetCallRecords, request,
                                &calls, deadline - absl::Now()));
  if (run_id.empty()) {
    MR_ASSIGN_OR_RETURN(runs, ReadRuns(head.get(), calls, deadline));
  }
  const bool is_table =
      line.Has("format") && absl::GetFlag(FLAGS_format) == "table";
  const std::string file = absl::GetFlag(FLAGS_output);
  if (file.empty()) {
    if (is_table) {
      std::cout << FormatTimelineTable(calls, runs);
    } else {
      WriteTimeline(calls, runs, [](absl::string_view piece) {
        std::cout.write(piece.data(),
                        static_cast<std::streamsize>(piece.size()));
      });
    }
    return absl::OkStatus();
  }
  MR_RETURN_IF_ERROR(WriteOutput(file, is_table
                                           ? FormatTimelineTable(calls, runs)
                                           : TimelineJson(calls, runs)));
  std::cout << calls.records_size() << " calls and " << runs.size()
            << " runs are in " << file;
  std::cout << (is_table ? "\n"
                         : "; open it in ui.perfetto.dev or "
                           "chrome://tracing\n");
  return absl::OkStatus();
}

}  // namespace miniray::cli
