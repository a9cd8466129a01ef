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
// Of one question that waits for news; it is asked again. Internal.
constexpr absl::Duration kWaitStep = absl::Seconds(5);
constexpr absl::Duration kLastLook = absl::Milliseconds(400);

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
                                   int64_t min_version, absl::Duration wait,
                                   absl::Duration timeout) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  request.set_min_version(min_version);
  request.set_wait_ms(absl::ToInt64Milliseconds(wait));
  v1::GetJobResponse response;
  MR_RETURN_IF_ERROR(
      head->Call(&v1::Head::Stub::GetJob, request, &response, timeout));
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

// Adds to the cause of a running job what its node's disk did not take of its
// output so far; the head hears of that only with its end.
void AddLostOutput(HeadClient* head, absl::Time deadline, v1::JobInfo* job) {
  if (!job->submitted() || job->state() != v1::JOB_STATE_RUNNING) return;
  grpc::ClientContext context;
  PrepareContext(&context, head->token(), deadline - absl::Now());
  v1::ReadLogRequest request;
  request.set_job_id(job->job_id());
  request.set_tail_lines(1);
  const auto reader = head->stub()->ReadLog(&context, request);
  v1::LogChunk chunk;
  std::string lost;
  while (reader->Read(&chunk)) {
    if (!chunk.error().empty()) lost = chunk.error();
  }
  // Without its node the rest is true all the same.
  (void)reader->Finish();
  if (lost.empty()) return;
  job->set_cause(job->cause().empty() ? lost
                                      : absl::StrCat(job->cause(), "; ", lost));
}

absl::Status ShowJob(const CommandLine& line, const std::string& job_id) {
  const absl::Time deadline = absl::Now() + TimeLimit(line, kQuestionTimeout);
  MR_ASSIGN_OR_RETURN(const auto head, HeadClient::FromFlags());
  MR_ASSIGN_OR_RETURN(v1::JobInfo job,
                      GetJob(head.get(), job_id, 0, absl::ZeroDuration(),
                             deadline - absl::Now()));
  AddLostOutput(head.get(), deadline, &job);
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
                                deadline - absl::Now()));
  int64_t version = 0;
  while (true) {
    // The head answers before the time is up; the last time it need not wait.
    const absl::Duration left = deadline - absl::Now();
    const absl::Duration wait = left < kLastLook
                                    ? absl::ZeroDuration()
                                    : std::min(left - kLastLook / 2, kWaitStep);
    MR_ASSIGN_OR_RETURN(
        const v1::JobInfo job,
        GetJob(head.get(), job_id, version, wait, std::max(left, kLastLook)));
    // Whatever it exits with from the order on, its state is `stopped`.
    if (job.end_unix_ms() != 0) return TellEnded(job);
    if (wait == absl::ZeroDuration()) {
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
    status = ShowJob(line, line.Argument(1));
  } else {
    status = StopJob(line, line.Argument(1));
  }
  return Finish(status);
}

}  // namespace miniray::cli
