#include "tools/cli/run.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/run.pb.h"
#include "runtime/base/status_macros.h"
#include "runtime/head/state_query.h"
#include "tools/cli/fail.h"
#include "tools/cli/flags.h"
#include "tools/cli/head_client.h"
#include "tools/cli/list_table.h"
#include "tools/cli/run_table.h"
#include "tools/cli/table_format.h"

namespace miniray::cli {
namespace {

// Between two looks at a run that is to end. Internal.
constexpr absl::Duration kLookAgain = absl::Milliseconds(500);
// What a look may take at least, though the time limit comes before.
constexpr absl::Duration kLastLook = absl::Milliseconds(400);

absl::Status CheckFlags(const CommandLine& line) {
  const std::string what = line.Argument(0);
  std::set<std::string> allowed = {"address", "token_file", "tls_dir",
                                   "timeout"};
  if (what == "list" || what == "status") {
    allowed.insert("format");
  } else if (what == "stop") {
    allowed.insert("wait");
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        what.empty()
            ? "say what to do"
            : absl::StrCat("unknown command 'run ", OneLine(what), "'"),
        ": run list, run status or run stop"));
  }
  for (const std::string& flag : line.given) {
    if (allowed.count(flag) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " does not go with run ", what));
    }
  }
  if (what != "list" && !line.Repeated("filter").empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--filter does not go with run ", what));
  }
  if (what == "list") {
    if (!line.Argument(1).empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "unexpected argument '", OneLine(line.Argument(1)), "'"));
    }
    return CheckListRunsFlags(line);
  }
  if (line.Argument(1).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("say which run: miniray run ", what, " RUN"));
  }
  MR_RETURN_IF_ERROR(CheckHeadFlags(line));
  return CheckFormatFlag();
}

absl::Status ShowRun(const CommandLine& line, const std::string& run_id) {
  MR_ASSIGN_OR_RETURN(const auto head, HeadClient::FromFlags());
  v1::GetRunRequest request;
  request.set_run_id(run_id);
  v1::GetRunResponse run;
  MR_RETURN_IF_ERROR(head->Call(&v1::RunCollector::Stub::GetRun, request, &run,
                                TimeLimit(line, kQuestionTimeout)));
  if (absl::GetFlag(FLAGS_format) == "json") {
    MR_ASSIGN_OR_RETURN(const std::string json, RecordToJson(run));
    std::cout << json << "\n";
  } else {
    std::cout << FormatRun(run);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::RunInfo> FindRun(HeadClient* head, const std::string& run_id,
                                    absl::Duration timeout) {
  v1::GetRunRequest request;
  request.set_run_id(run_id);
  request.set_max_points(2);  // The fewest: they are not looked at.
  v1::GetRunResponse run;
  MR_RETURN_IF_ERROR(
      head->Call(&v1::RunCollector::Stub::GetRun, request, &run, timeout));
  return run.run();
}

// Until it has ended.
absl::Status AwaitEnd(HeadClient* head, const std::string& run_id,
                      absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "run ", run_id, " is told to stop, but has not ended yet"));
    }
    MR_ASSIGN_OR_RETURN(
        const v1::RunInfo run,
        FindRun(head, run_id, std::clamp(left, kLastLook, kQuestionTimeout)));
    if (run.state() != v1::RUN_STATE_RUNNING) {
      std::cout << "Run " << run_id << " has ended: " << RunStateWord(run)
                << (run.error().empty() ? "" : ": ") << OneLine(run.error())
                << ".\n";
      return absl::OkStatus();
    }
    absl::SleepFor(std::min(left, kLookAgain));
  }
}

absl::Status StopRun(const CommandLine& line, const std::string& run_id) {
  // Of the whole.
  const absl::Time deadline =
      absl::Now() + TimeLimit(line, absl::InfiniteDuration());
  MR_ASSIGN_OR_RETURN(const auto head, HeadClient::FromFlags());
  v1::StopRunRequest request;
  request.set_run_id(run_id);
  v1::StopRunResponse response;
  const absl::Status stopped =
      head->Call(&v1::RunCollector::Stub::StopRun, request, &response,
                 TimeLimit(line, kQuestionTimeout));
  if (absl::IsFailedPrecondition(stopped)) {
    // What was wanted is so; how it ended is worth a word.
    MR_ASSIGN_OR_RETURN(const v1::RunInfo run,
                        FindRun(head.get(), run_id, kQuestionTimeout));
    std::cout << "Run " << run_id << " had already ended: " << RunStateWord(run)
              << ".\n";
    return absl::OkStatus();
  }
  MR_RETURN_IF_ERROR(stopped);
  if (line.Has("wait") && absl::GetFlag(FLAGS_wait)) {
    return AwaitEnd(head.get(), run_id, deadline);
  }
  std::cout << "Run " << run_id
            << " is told to stop: it ends after the epoch that it is in.\n";
  return absl::OkStatus();
}

}  // namespace

int RunRun(const CommandLine& line) {
  if (const absl::Status status = CheckFlags(line); !status.ok()) {
    return Fail(absl::InvalidArgumentError(absl::StrCat(
                    status.message(), "; see: miniray run --help")),
                kWrongUsage);
  }
  const std::string what = line.Argument(0);
  absl::Status status;
  if (what == "list") {
    status = ListRuns(line);
  } else if (what == "status") {
    status = ShowRun(line, line.Argument(1));
  } else {
    status = StopRun(line, line.Argument(1));
  }
  return Finish(status);
}

absl::Status CheckListRunsFlags(const CommandLine& line) {
  MR_ASSIGN_OR_RETURN(const std::vector<v1::Filter> filters,
                      ParseFilters(line.Repeated("filter")));
  MR_RETURN_IF_ERROR(CheckFilters(*v1::RunInfo::descriptor(), filters));
  MR_RETURN_IF_ERROR(CheckHeadFlags(line));
  return CheckFormatFlag();
}

absl::Status ListRuns(const CommandLine& line) {
  MR_ASSIGN_OR_RETURN(const std::vector<v1::Filter> filters,
                      ParseFilters(line.Repeated("filter")));
  MR_ASSIGN_OR_RETURN(const auto head, HeadClient::FromFlags());
  v1::ListRunsResponse response;
  MR_RETURN_IF_ERROR(head->Call(&v1::RunCollector::Stub::ListRuns,
                                v1::ListRunsRequest(), &response,
                                TimeLimit(line, kQuestionTimeout)));
  RunInfos runs;
  for (v1::RunInfo& run : *response.mutable_runs()) {
    if (PassesFilters(filters, run)) runs.Add(std::move(run));
  }
  SortByAge(&runs);
  if (absl::GetFlag(FLAGS_format) == "json") {
    MR_ASSIGN_OR_RETURN(const std::string json, RecordsToJson(runs));
    std::cout << json;
  } else {
    std::cout << FormatRuns(runs);
  }
  return absl::OkStatus();
}

}  // namespace miniray::cli
