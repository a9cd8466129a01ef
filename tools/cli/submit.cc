#include "tools/cli/submit.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/packages/folder_archive.h"
#include "runtime/packages/upload.h"
#include "runtime/rpc/grpc_status.h"
#include "tools/cli/await_head.h"
#include "tools/cli/cancellation.h"
#include "tools/cli/fail.h"
#include "tools/cli/head_client.h"
#include "tools/cli/patience.h"
#include "tools/cli/read_log.h"
#include "tools/cli/table_format.h"

namespace miniray::cli {
namespace {

constexpr absl::Duration kWaitStep = absl::Seconds(5);

bool IsProgram(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

// Finds the program as a shell would: a path, from here or from the working
// folder; a bare name in $PATH.
absl::StatusOr<std::string> FindProgram(const std::string& name,
                                        const std::string& working_dir) {
  std::vector<std::string> paths;
  if (absl::StrContains(name, '/')) {
    paths.push_back(name);
    if (!working_dir.empty() && name[0] != '/') {
      paths.push_back(absl::StrCat(working_dir, "/", name));
    }
  } else if (const char* folders = std::getenv("PATH")) {
    for (absl::string_view folder : absl::StrSplit(folders, ':')) {
      paths.push_back(absl::StrCat(folder.empty() ? "." : folder, "/", name));
    }
  }
  for (const std::string& path : paths) {
    if (IsProgram(path)) return path;
  }
  return absl::NotFoundError(absl::StrCat(
      "'", name, "' is not a program",
      absl::StrContains(name, '/')
          ? ""
          : absl::StrCat(" in $PATH; one in this folder is ./", name)));
}

std::string Submitter() {
  const passwd* user = getpwuid(getuid());
  return ToUtf8(
      absl::StrCat(user == nullptr ? absl::StrCat(getuid()) : user->pw_name,
                   "@", Hostname()));
}

// A file without a name, which is gone with this process.
absl::StatusOr<ScopedFd> TemporaryFile() {
  const char* folder = std::getenv("TMPDIR");
  std::string path =
      absl::StrCat(folder != nullptr && *folder == '/' ? folder : "/tmp",
                   "/miniray-folder-XXXXXX");
  ScopedFd fd(mkostemp(path.data(), O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("create ", path));
  unlink(path.c_str());
  return fd;
}

// Asks the head for something, and again while it does not answer. Errors:
// DEADLINE_EXCEEDED, not before `deadline`; those of AwaitHead.
template <class Ask>
absl::Status AskUntilAnswered(Patience* patience, absl::Time deadline,
                              const Ask& ask) {
  Cancellation never;
  while (true) {
    const absl::Status status = ask();
    if (status.ok()) {
      patience->Answered();
      return status;
    }
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(status.message());
    }
    MR_RETURN_IF_ERROR(AwaitHead(status, patience, &never));
  }
}

// What a head had of it when it was killed counts for nothing.
absl::Status Send(HeadClient* head, const std::string& path,
                  const std::string& package_id, const std::string& what,
                  Patience* patience, absl::Time deadline) {
  const absl::Status status = AskUntilAnswered(patience, deadline, [&] {
    return head->Explain(ToGrpcStatus(UploadPackage(
        head->stub(), head->token(), path, package_id, deadline)));
  });
  return Annotate(status, absl::StrCat("send ", what));
}

// Sends program and folder; fills their ids in.
absl::Status Upload(HeadClient* head, SubmitOptions* options,
                    Patience* patience, absl::Time deadline) {
  MR_ASSIGN_OR_RETURN(
      const std::string program,
      FindProgram(options->spec.command(0), options->working_dir));
  MR_ASSIGN_OR_RETURN(const std::string package_id, Sha256OfFile(program));
  options->spec.set_package_id(package_id);
  MR_RETURN_IF_ERROR(
      Send(head, program, package_id, program, patience, deadline));
  if (options->working_dir.empty()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(const ScopedFd archive, TemporaryFile());
  absl::StatusOr<ArchiveSummary> packed =
      PackFolder(options->working_dir, archive.get(),
                 {.max_bytes = options->max_folder_bytes});
  // Not the number of files, or a full disk.
  if (absl::IsResourceExhausted(packed.status()) &&
      absl::StrContains(packed.status().message(), "the limit is")) {
    return absl::ResourceExhaustedError(
        absl::StrCat(packed.status().message(),
                     "; keep data elsewhere, or raise "
                     "--max_folder_bytes"));
  }
  MR_RETURN_IF_ERROR(Annotate(packed.status(), "--working_dir"));
  const std::string path = absl::StrCat("/proc/self/fd/", archive.get());
  MR_ASSIGN_OR_RETURN(const std::string folder_id, Sha256OfFile(path));
  options->spec.set_folder_id(folder_id);
  return Send(head, path, folder_id, options->working_dir, patience, deadline);
}

// The job's id makes it safe to ask again.
absl::Status Submit(HeadClient* head, const v1::JobSpec& spec,
                    Patience* patience, absl::Time deadline) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  return AskUntilAnswered(patience, deadline, [&] {
    v1::SubmitJobResponse response;
    return head->Call(&v1::Head::Stub::SubmitJob, request, &response,
                      std::min(kQuestionTimeout, deadline - absl::Now()));
  });
}

bool Ended(const v1::JobInfo& job) {
  return job.state() == v1::JOB_STATE_SUCCEEDED ||
         job.state() == v1::JOB_STATE_FAILED ||
         job.state() == v1::JOB_STATE_STOPPED;
}

// Follows one job from its submission to its end.
class Follower {
 public:
  Follower(HeadClient* head, std::string job_id, Patience* patience,
           Cancellation* cancellation)
      : head_(head),
        job_id_(std::move(job_id)),
        patience_(patience),
        cancellation_(cancellation) {}

  absl::Status Run() {
    MR_RETURN_IF_ERROR(Await([](const v1::JobInfo& job) {
      return Ended(job) || job.state() == v1::JOB_STATE_RUNNING;
    }));
    // One that never ran has no log.
    if (!job_.node_id().empty() && job_.start_unix_ms() != 0) {
      MR_RETURN_IF_ERROR(PrintOutput());
    }
    return Await(&Ended);
  }

  const v1::JobInfo& job() const { return job_; }

 private:
  absl::Status PrintOutput() {
    v1::ReadLogRequest request;
    request.set_job_id(job_id_);
    request.set_follow(true);
    const absl::Status status =
        PrintLog(head_, &request, patience_, cancellation_);
    if (status.ok() || absl::IsCancelled(status) || absl::IsAborted(status) ||
        absl::IsDataLoss(status) || patience_->gave_up()) {
      return status;
    }
    // What the head says of a log is no news of the job.
    std::cerr << "miniray: some of its output is missing: "
              << OneLine(status.message()) << std::endl;
    return absl::OkStatus();
  }

  absl::Status Await(bool (*reached)(const v1::JobInfo&)) {
    while (true) {
      v1::GetJobRequest request;
      request.set_job_id(job_id_);
      request.set_min_version(job_.version() + 1);
      request.set_wait_ms(absl::ToInt64Milliseconds(kWaitStep));
      v1::GetJobResponse response;
      grpc::ClientContext context;
      PrepareContext(&context, head_->token(), kWaitStep + kQuestionTimeout);
      absl::Status status;
      {
        const Cancellation::Scope scope(cancellation_, &context);
        status =
            head_->Explain(head_->stub()->GetJob(&context, request, &response));
      }
      if (cancellation_->cancelled()) return absl::CancelledError("stopped");
      if (!status.ok()) {
        MR_RETURN_IF_ERROR(AwaitHead(status, patience_, cancellation_));
        continue;
      }
      patience_->Answered();
      Take(response.job());
      if (reached(job_)) return absl::OkStatus();
    }
  }

  void Take(const v1::JobInfo& job) {
    if (job.state() == v1::JOB_STATE_PENDING && !job.cause().empty() &&
        job.cause() != job_.cause()) {
      std::cerr << "miniray: job " << job_id_ << " " << OneLine(job.cause())
                << std::endl;
    }
    job_ = job;
  }

  HeadClient* const head_;
  const std::string job_id_;
  Patience* const patience_;
  Cancellation* const cancellation_;
  v1::JobInfo job_;
};

// Before the head has said that it has the job.
int FailToSubmit(const absl::Status& status, absl::Time deadline) {
  return Fail(status,
              absl::IsDeadlineExceeded(status) && absl::Now() >= deadline
                  ? kTimeLimit
                  : kFailed);
}

int TellEnd(const v1::JobInfo& job) {
  if (job.state() == v1::JOB_STATE_SUCCEEDED) {
    if (!job.cause().empty()) {
      std::cerr << "miniray: job " << job.job_id() << " succeeded, but "
                << OneLine(job.cause()) << std::endl;
    }
    return kDone;
  }
  return Fail(absl::AbortedError(absl::StrCat(
                  "job ", job.job_id(), " ",
                  StateWord(v1::JobState_Name(job.state()), "JOB_STATE_"),
                  job.cause().empty() ? "" : absl::StrCat(": ", job.cause()))),
              job.exit_code() == 0 ? kFailed : job.exit_code());
}

}  // namespace

int RunSubmit(const CommandLine& line, SubmitOptions options) {
  const absl::Duration limit = TimeLimit(line, absl::InfiniteDuration());
  const absl::Time deadline = absl::Now() + limit;
  auto head = HeadClient::FromFlags();
  if (!head.ok()) return Fail(head.status());
  Patience patience = PatienceWith(**head, options.head_patience);
  if (const absl::Status status =
          Upload(head->get(), &options, &patience, deadline);
      !status.ok()) {
    return FailToSubmit(status, deadline);
  }
  const std::string& job_id = options.spec.job_id();
  options.spec.set_submitter(Submitter());
  options.spec.set_submission_id(NewId("submission"));
  if (const absl::Status status =
          Submit(head->get(), options.spec, &patience, deadline);
      !status.ok()) {
    return FailToSubmit(status, deadline);
  }
  if (!options.wait) {
    std::cout << job_id << std::endl;
    return kDone;
  }
  std::cerr << "miniray: job " << job_id << " is submitted" << std::endl;
  Cancellation cancellation;
  Follower follower(head->get(), job_id, &patience, &cancellation);
  absl::Status status;
  const auto interruption = RunInterruptibly(
      deadline - absl::Now(), &cancellation, [&] { status = follower.Run(); });
  if (!interruption.ok()) return Fail(interruption.status());
  if (interruption->exit_code != 0) {
    const std::string where =
        absl::StrCat(job_id, " --address ", (*head)->address());
    return Fail(
        absl::CancelledError(absl::StrCat(
            interruption->exit_code == kTimeLimit
                ? absl::StrCat("the time limit of ",
                               absl::FormatDuration(limit))
                : interruption->what,
            ": waits no longer; job ", job_id,
            " goes on. Stop it with: miniray job stop ", where,
            "; see its output with: miniray job logs --follow ", where)),
        interruption->exit_code);
  }
  if (!status.ok()) {
    return Fail(Annotate(
        status,
        absl::StrCat("job ", job_id,
                     absl::IsDataLoss(status)  ? ", which goes on"
                     : patience.head_stopped() ? " ends with its cluster"
                                               : "")));
  }
  return TellEnd(follower.job());
}

}  // namespace miniray::cli
