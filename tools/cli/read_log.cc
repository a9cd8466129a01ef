#include "tools/cli/read_log.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "tools/cli/fail.h"
#include "tools/cli/flags.h"

namespace miniray::cli {
namespace {

constexpr absl::Duration kRetryPeriod = absl::Milliseconds(500);

// Returns 0, or what went wrong.
int WriteOut(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

// What the log has no longer.
void TellLost(int64_t bytes) {
  std::cerr << "[miniray: " << bytes
            << " bytes of the output are missing here: the log's oldest files "
               "made way before they were read]"
            << std::endl;
}

}  // namespace

absl::Status PrintLog(HeadClient* head, v1::ReadLogRequest* request,
                      Cancellation* cancellation) {
  absl::Time give_up = absl::Now() + kLogPatience;
  bool connected = false;
  while (true) {
    grpc::ClientContext context;
    AddToken(&context, head->token());
    absl::Status status;
    int write_error = 0;
    {
      const Cancellation::Scope scope(cancellation, &context);
      const auto reader = head->stub()->ReadLog(&context, *request);
      v1::LogChunk chunk;
      while (write_error == 0 && reader->Read(&chunk)) {
        connected = true;
        give_up = absl::Now() + kLogPatience;
        if (chunk.lost_bytes() > 0) TellLost(chunk.lost_bytes());
        write_error = WriteOut(chunk.data());
        if (chunk.incarnation() != request->min_incarnation()) {
          request->set_min_incarnation(chunk.incarnation());
          request->clear_skip_bytes();
        }
        request->set_skip_bytes(request->skip_bytes() + chunk.lost_bytes() +
                                static_cast<int64_t>(chunk.data().size()));
      }
      if (write_error != 0) context.TryCancel();
      status = head->Explain(reader->Finish());
    }
    if (cancellation->cancelled()) return absl::CancelledError("stopped");
    if (write_error == EPIPE) {
      return absl::AbortedError("nobody reads the output");
    }
    if (write_error != 0) {
      return absl::DataLossError(
          ErrnoStatus(write_error, "cannot write the output").message());
    }
    // What has begun may go on; the last lines cannot be found again.
    if (!absl::IsUnavailable(status) || !connected ||
        request->tail_lines() > 0 || absl::Now() > give_up ||
        absl::StartsWith(status.message(), kLogGone)) {
      return status;
    }
    if (cancellation->Sleep(kRetryPeriod)) {
      return absl::CancelledError("stopped");
    }
  }
}

absl::Status CheckLogFlags(const CommandLine& line) {
  MR_RETURN_IF_ERROR(CheckHeadFlags(line));
  if (absl::GetFlag(FLAGS_tail) < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tail=", absl::GetFlag(FLAGS_tail),
                     ": expected a number of lines, 0 for all"));
  }
  return absl::OkStatus();
}

int RunLogs(const CommandLine& line, v1::ReadLogRequest request) {
  request.set_tail_lines(absl::GetFlag(FLAGS_tail));
  request.set_follow(absl::GetFlag(FLAGS_follow));
  auto head = HeadClient::FromFlags();
  if (!head.ok()) return Fail(head.status());
  Cancellation cancellation;
  absl::Status status;
  const auto interruption = RunInterruptibly(
      TimeLimit(line, request.follow() ? absl::InfiniteDuration()
                                       : absl::Minutes(10)),
      &cancellation,
      [&] { status = PrintLog(head->get(), &request, &cancellation); });
  if (!interruption.ok()) return Fail(interruption.status());
  if (interruption->exit_code == 124) {
    return Fail(absl::DeadlineExceededError(
                    absl::StrCat(interruption->what, " is over")),
                124);
  }
  if (interruption->exit_code != 0) return interruption->exit_code;
  // `miniray logs ... | head` is no failure.
  if (absl::IsAborted(status)) return 0;
  return status.ok() ? 0 : Fail(status);
}

}  // namespace miniray::cli
