#include "tools/cli/read_log.h"

#include <cerrno>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "tools/cli/await_head.h"
#include "tools/cli/fail.h"
#include "tools/cli/flags.h"
#include "tools/cli/table_format.h"
#include "tools/cli/write_out.h"

namespace miniray::cli {
namespace {

// What the log has no longer.
void TellLost(int64_t bytes) {
  std::cerr << "[miniray: " << bytes
            << " bytes of the output are missing here: the log's oldest files "
               "made way before they were read]"
            << std::endl;
}

// Writes what came; `request` then asks for what follows. Returns 0, or what
// went wrong.
int Take(const v1::LogChunk& chunk, v1::ReadLogRequest* request) {
  if (chunk.incarnation() != request->min_incarnation()) {
    request->set_min_incarnation(chunk.incarnation());
    request->clear_skip_bytes();
  }
  if (chunk.data().empty()) return 0;
  if (request->tail_lines() > 0) {
    request->clear_tail_lines();  // What stood before was not wanted.
  } else if (chunk.lost_bytes() > 0) {
    TellLost(chunk.lost_bytes());
  }
  request->set_skip_bytes(request->skip_bytes() + chunk.lost_bytes() +
                          static_cast<int64_t>(chunk.data().size()));
  return WriteOut(chunk.data());
}

// The head answers, but the node with the log is not connected to it.
bool IsCutOff(const absl::Status& status) {
  return absl::IsUnavailable(status) &&
         absl::StartsWith(status.message(), kLogGone);
}

}  // namespace

absl::Status PrintLog(HeadClient* head, v1::ReadLogRequest* request,
                      Patience* patience, Cancellation* cancellation) {
  bool connected = false;
  int times_cut_off = 0;  // One after the other.
  std::string notice;
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
        times_cut_off = 0;
        patience->Answered();
        write_error = Take(chunk, request);
        // Told again by a node that was cut off meanwhile.
        if (chunk.error().empty() || chunk.error() == notice) continue;
        notice = chunk.error();
        std::cerr << "[miniray: " << OneLine(notice) << "]" << std::endl;
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
    if (status.ok()) return status;
    if (!IsCutOff(status)) {
      if (!patience->has_answered()) return status;
      MR_RETURN_IF_ERROR(AwaitHead(status, patience, cancellation));
      continue;
    }
    patience->Answered();
    if (!request->follow() && !connected) return status;
    // Not at once: a moment later the head may know that it is gone.
    if (++times_cut_off == 2) {
      std::cerr << "miniray: " << OneLine(status.message())
                << "; waiting for it" << std::endl;
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
  return ReadHeadPatience().status();
}

int RunLogs(const CommandLine& line, v1::ReadLogRequest request) {
  request.set_tail_lines(absl::GetFlag(FLAGS_tail));
  request.set_follow(absl::GetFlag(FLAGS_follow));
  auto head = HeadClient::FromFlags();
  if (!head.ok()) return Fail(head.status());
  Patience patience = PatienceWith(**head, ReadHeadPatience().value());
  Cancellation cancellation;
  absl::Status status;
  const auto interruption = RunInterruptibly(
      TimeLimit(line, request.follow() ? absl::InfiniteDuration()
                                       : absl::Minutes(10)),
      &cancellation, [&] {
        status = PrintLog(head->get(), &request, &patience, &cancellation);
      });
  if (!interruption.ok()) return Fail(interruption.status());
  if (interruption->exit_code == kTimeLimit) {
    return Fail(patience.has_answered()
                    ? absl::DeadlineExceededError(
                          absl::StrCat(interruption->what, " is over"))
                    : (*head)->Explain(grpc::Status(
                          grpc::StatusCode::DEADLINE_EXCEEDED, "")),
                kTimeLimit);
  }
  if (interruption->exit_code != 0) return interruption->exit_code;
  // `miniray logs ... | head` is no failure.
  if (absl::IsAborted(status)) return 0;
  return status.ok() ? 0 : Fail(status);
}

}  // namespace miniray::cli
