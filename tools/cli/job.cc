#include "tools/cli/job.h"

#include <algorithm>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "tools/cli/fail.h"
#include "tools/cli/flags.h"
#include "tools/cli/head_client.h"
#include "tools/cli/list.h"
#include "tools/cli/list_table.h"
#include "tools/cli/read_log.h"
#include "tools/cli/table_format.h"

namespace miniray::cli {
namespace {

// A process that is stopped has a grace of its node.
constexpr absl::Duration kStopTimeout = absl::Seconds(30);

absl::Status CheckFlags(const CommandLine& line) {
  const std::string what = line.Argument(0);
  std::set<std::string> allowed = {"address", "token_file", "tls_dir",
                                   "timeout"};
  if (what == "list") {
    allowed.insert("format");
  } else if (what == "status") {
    allowed.insert("format");
  } else if (what == "logs") {
    allowed.insert({"follow", "tail", "head_patience"});
  } else if (what != "stop") {
    return absl::InvalidArgumentError(absl::StrCat(
        what.empty()
            ? "say what to do"
            : absl::StrCat("unknown command 'job ", OneLine(what), "'"),
        ": job list, job status, job logs or job stop"));
  }
  for (const std::string& flag : line.given) {
    if (allowed.count(flag) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " does not go with job ", what));
    }
  }
  if (what != "list" && !line.Repeated("filter").empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--filter does not go with job ", what));
  }
  if (what == "list") {
    if (!line.Argument(1).empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "unexpected argument '", OneLine(line.Argument(1)), "'"));
    }
    return CheckListFlags(line, "jobs");
  }
  if (line.Argument(1).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("say which job: miniray job ", what, " JOB"));
  }
  MR_RETURN_IF_ERROR(CheckLogFlags(line));
  return CheckFormatFlag();
}

absl::StatusOr<v1::JobInfo> GetJob(HeadClient* head, const std::string& job_id,
                                   int64_t min_version, absl::Duration wait) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  request.set_min_version(min_version);
  request.set_wait_ms(absl::ToInt64Milliseconds(wait));
  v1::GetJobResponse response;
  MR_RETURN_IF_ERROR(head->Call(&v1::Head::Stub::GetJob, request, &response,
                                wait + kQuestionTimeout));
  return response.job();
}

std::string FormatJob(const v1::JobInfo& job) {
  std::string text;
  const auto add = [&text](absl::string_view name, const std::string& value) {
    if (value.empty()) return;
    absl::StrAppend(&text, name, ":", std::string(11 - name.size(), ' '),
                    OneLine(value), "\n");
  };
  add("Job", job.job_id());
  add("State", JobStateWord(job));
  add("Cause", job.cause());
  if (job.submitted() && job.end_unix_ms() != 0) {
    const std::string code = ExitCodeText(job);
    add("Exit code", code.empty() ? "-" : code);
  }
  add("Program", job.program());
  add("Command", absl::StrJoin(job.command(), " "));
  add("Resources", Describe(job.resources()));
  add("Submitter", job.submitter());
  add("Node", job.node_id());
  add("Host", job.hostname());
  add("Pid", job.pid() == 0 ? "" : absl::StrCat(job.pid()));
  add("Submitted", LocalTime(job.submit_unix_ms()));
  add("Started", LocalTime(job.start_unix_ms()));
  add("Ended", LocalTime(job.end_unix_ms()));
  add("Log", job.log_file());
  return text;
}

absl::Status ShowJob(const std::string& job_id) {
  MR_ASSIGN_OR_RETURN(const auto head, HeadClient::FromFlags());
  MR_ASSIGN_OR_RETURN(const v1::JobInfo job,
                      GetJob(head.get(), job_id, 0, absl::ZeroDuration()));
  if (absl::GetFlag(FLAGS_format) == "json") {
    MR_ASSIGN_OR_RETURN(const std::string json, RecordToJson(job));
    std::cout << json << "\n";
  } else {
    std::cout << FormatJob(job);
  }
  return absl::OkStatus();
}

absl::Status TellEnded(const v1::JobInfo& job) {
  if (job.state() == v1::JOB_STATE_STOPPED) {
    std::cout << "Job " << job.job_id() << " stopped.\n";
    return absl::OkStatus();
  }
  const std::string state = JobStateWord(job);
  std::cout << "Job " << job.job_id() << " had already ended"
            << (state == "ended" ? "" : absl::StrCat(": ", state)) << ".\n";
  return absl::OkStatus();
}

// Returns once it has ended.
absl::Status StopJob(const CommandLine& line, const std::string& job_id) {
  const absl::Time deadline = absl::Now() + TimeLimit(line, kStopTimeout);
  MR_ASSIGN_OR_RETURN(const auto head, HeadClient::FromFlags());
  v1::StopJobRequest request;
  request.set_job_id(job_id);
  v1::StopJobResponse response;
  MR_RETURN_IF_ERROR(head->Call(&v1::Head::Stub::StopJob, request, &response,
                                kQuestionTimeout));
  int64_t version = 0;
  while (true) {
    const absl::Duration left = deadline - absl::Now();
    MR_ASSIGN_OR_RETURN(const v1::JobInfo job,
                        GetJob(head.get(), job_id, version,
                               std::clamp(left, absl::ZeroDuration(),
                                          absl::Duration(absl::Seconds(5)))));
    // Whatever it exits with from the order on, its state is `stopped`.
    if (job.end_unix_ms() != 0) return TellEnded(job);
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "job ", job_id, " is told to stop, but has not ended yet"));
    }
    version = job.version() + 1;
  }
}

}  // namespace

int RunJob(const CommandLine& line) {
  if (const absl::Status status = CheckFlags(line); !status.ok()) {
    return Fail(absl::InvalidArgumentError(absl::StrCat(
                    status.message(), "; see: miniray job --help")),
                kWrongUsage);
  }
  const std::string what = line.Argument(0);
  absl::Status status;
  if (what == "logs") {
    v1::ReadLogRequest request;
    request.set_job_id(line.Argument(1));
    return RunLogs(line, std::move(request));
  }
  if (what == "list") {
    status = RunList(line, "jobs");
  } else if (what == "status") {
    status = ShowJob(line.Argument(1));
  } else {
    status = StopJob(line, line.Argument(1));
    if (absl::IsDeadlineExceeded(status)) return Fail(status, kTimeLimit);
  }
  return status.ok() ? kDone : Fail(status);
}

}  // namespace miniray::cli
