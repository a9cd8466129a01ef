#include "tools/cli/status.h"

#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/head.pb.h"
#include "runtime/base/status_macros.h"
#include "runtime/dashboard/state_json.h"
#include "tools/cli/fail.h"
#include "tools/cli/flags.h"
#include "tools/cli/head_client.h"
#include "tools/cli/list_table.h"
#include "tools/cli/screen.h"
#include "tools/cli/status_table.h"
#include "tools/cli/table_format.h"
#include "tools/cli/view.h"

namespace miniray::cli {
namespace {

bool IsJson() { return absl::GetFlag(FLAGS_format) == "json"; }

absl::StatusOr<v1::GetClusterStateResponse> GetState(
    HeadClient* head, absl::Duration timeout, Cancellation* cancellation) {
  v1::GetClusterStateResponse state;
  MR_RETURN_IF_ERROR(head->Call(&v1::Head::Stub::GetClusterState,
                                v1::GetClusterStateRequest(), &state, timeout,
                                cancellation));
  SortByAge(&state);
  return state;
}

std::string Tables(const HeadClient& head,
                   const v1::GetClusterStateResponse& state) {
  return FormatClusterState(state, head.address(), absl::GetFlag(FLAGS_all));
}

std::string Now() { return LocalTime(absl::ToUnixMillis(absl::Now())); }

class StatusView : public View {
 public:
  explicit StatusView(HeadClient* head) : head_(head) {}

  absl::Status Fetch(absl::Duration timeout,
                     Cancellation* cancellation) override {
    MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse state,
                        GetState(head_, timeout, cancellation));
    Frame frame;
    frame.lines = SplitLines(
        absl::StrCat(Now(), "  (q: quit)\n\n", Tables(*head_, state)));
    frame.inverse = {0};
    absl::MutexLock lock(&mu_);
    frame_ = std::move(frame);
    return absl::OkStatus();
  }

  Frame Show(const ScreenSize& size) override {
    absl::MutexLock lock(&mu_);
    return frame_;
  }

 private:
  HeadClient* const head_;
  absl::Mutex mu_;
  Frame frame_ ABSL_GUARDED_BY(mu_);
};

// The tables, or a line of JSON, whenever they have changed.
int PrintStatusNews(const CommandLine& line, HeadClient* head) {
  std::string last;
  return PrintNews(
      line, *head,
      [head, &last](absl::Duration timeout,
                    Cancellation* cancellation) -> absl::StatusOr<std::string> {
        MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse state,
                            GetState(head, timeout, cancellation));
        std::string text;
        if (IsJson()) {
          MR_ASSIGN_OR_RETURN(text,
                              ClusterStateToJson(state, JsonStyle::kCompact));
        } else {
          text = Tables(*head, state);
        }
        if (text == last) return "";
        last = text;
        return IsJson() ? absl::StrCat(text, "\n")
                        : absl::StrCat("== ", Now(), "\n", text, "\n");
      });
}

absl::Status ShowOnce(const CommandLine& line, HeadClient* head) {
  MR_ASSIGN_OR_RETURN(
      const v1::GetClusterStateResponse state,
      GetState(head, TimeLimit(line, kQuestionTimeout), nullptr));
  if (IsJson()) {
    MR_ASSIGN_OR_RETURN(const std::string json,
                        ClusterStateToJson(state, JsonStyle::kIndented));
    std::cout << json;
  } else {
    std::cout << Tables(*head, state);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckStatusFlags(const CommandLine& line) {
  MR_RETURN_IF_ERROR(CheckHeadFlags(line));
  MR_RETURN_IF_ERROR(CheckIntervalFlag(line));
  if (line.Has("interval") && !absl::GetFlag(FLAGS_watch)) {
    return absl::InvalidArgumentError("--interval goes with --watch");
  }
  return CheckFormatFlag();
}

int RunStatus(const CommandLine& line) {
  const absl::StatusOr<std::unique_ptr<HeadClient>> head =
      HeadClient::FromFlags();
  if (!head.ok()) return Fail(head.status());
  if (absl::GetFlag(FLAGS_watch)) {
    if (IsJson() || !IsScreen(STDOUT_FILENO)) {
      return PrintStatusNews(line, head->get());
    }
    StatusView view(head->get());
    return ShowOnScreen(line, &view);
  }
  return Finish(ShowOnce(line, head->get()));
}

}  // namespace miniray::cli
