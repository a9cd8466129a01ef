#include "tools/cli/top.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/head.pb.h"
#include "runtime/base/status_macros.h"
#include "tools/cli/actor_inspector.h"
#include "tools/cli/fail.h"
#include "tools/cli/flags.h"
#include "tools/cli/head_client.h"
#include "tools/cli/list_table.h"
#include "tools/cli/screen.h"
#include "tools/cli/table_format.h"
#include "tools/cli/top_table.h"
#include "tools/cli/view.h"

namespace miniray::cli {
namespace {

// What all actors together have to answer; the others are shown without.
constexpr absl::Duration kInspectTimeout = absl::Milliseconds(500);
// Actors that are asked where nobody sees how many are shown.
constexpr int kMostAsked = 200;

class TopView : public View {
 public:
  // rows: of actors at most, until Show says better.
  TopView(HeadClient* head, TopOrder order, int rows)
      : head_(head), inspector_(head->token()), order_(order), rows_(rows) {}

  absl::Status Fetch(absl::Duration timeout,
                     Cancellation* cancellation) override {
    const absl::Time deadline = absl::Now() + timeout;
    TopSample sample;
    sample.head_address = head_->address();
    v1::GetClusterStateRequest request;
    request.add_tables(v1::TABLE_NODES);
    request.add_tables(v1::TABLE_ACTORS);
    MR_RETURN_IF_ERROR(head_->Call(&v1::Head::Stub::GetClusterState, request,
                                   &sample.state, timeout, cancellation));
    SortByAge(&sample.state);
    const absl::Status used =
        head_->Call(&v1::Head::Stub::GetUsage, v1::GetUsageRequest(),
                    &sample.usage, deadline - absl::Now(), cancellation);
    // A head of an earlier version does not know; the rest is true all the
    // same.
    if (!used.ok() && !absl::IsUnimplemented(used)) return used;
    sample.time = LocalTime(absl::ToUnixMillis(absl::Now()));
    AskActors(&sample);
    absl::MutexLock lock(&mu_);
    sample_ = std::move(sample);
    return absl::OkStatus();
  }

  Frame Show(const ScreenSize& size) override {
    absl::MutexLock lock(&mu_);
    rows_ = size.rows;
    return FormatTop(sample_, order_, size.rows);
  }

  // As text, with all rows.
  std::vector<std::string> Lines() {
    absl::MutexLock lock(&mu_);
    return FormatTop(sample_, order_, /*rows=*/0).lines;
  }

  void OnKey(char key) override {
    if (key != 's' && key != 'S') return;
    absl::MutexLock lock(&mu_);
    order_ = NextOrder(order_);
  }

 private:
  struct Told {
    int32_t incarnation = 0;
    uint64_t calls_done = 0;
    absl::Time at;
  };

  // Those that can be on the screen.
  void AskActors(TopSample* sample) ABSL_LOCKS_EXCLUDED(mu_) {
    std::vector<v1::ActorInfo> asked;
    {
      absl::MutexLock lock(&mu_);
      for (const v1::ActorInfo* actor : SortedActors(*sample, order_)) {
        if (static_cast<int>(asked.size()) >= std::min(rows_, kMostAsked)) {
          break;
        }
        asked.push_back(*actor);
      }
    }
    std::map<std::string, Told> told;
    for (const auto& [id, answer] : inspector_.Ask(asked, kInspectTimeout)) {
      const Told now = {answer.incarnation(), answer.calls_done(), absl::Now()};
      ActorCalls& calls = sample->calls[id];
      calls.queued = static_cast<int64_t>(answer.calls_waiting());
      const auto before = told_.find(id);
      if (before != told_.end() &&
          before->second.incarnation == now.incarnation &&
          before->second.calls_done <= now.calls_done) {
        const double seconds =
            std::max(absl::ToDoubleSeconds(now.at - before->second.at), 1e-3);
        calls.per_second =
            static_cast<double>(now.calls_done - before->second.calls_done) /
            seconds;
      }
      told[id] = now;
    }
    told_ = std::move(told);
  }

  HeadClient* const head_;
  // Of the thread that fetches.
  ActorInspector inspector_;
  std::map<std::string, Told> told_;
  absl::Mutex mu_;
  TopOrder order_ ABSL_GUARDED_BY(mu_);
  int rows_ ABSL_GUARDED_BY(mu_);
  TopSample sample_ ABSL_GUARDED_BY(mu_);
};

// Rates take two looks.
absl::Status PrintOnce(const CommandLine& line, TopView* view) {
  const absl::Time deadline = absl::Now() + TimeLimit(line, kQuestionTimeout);
  const absl::Duration interval = absl::Seconds(absl::GetFlag(FLAGS_interval));
  MR_RETURN_IF_ERROR(view->Fetch(deadline - absl::Now(), nullptr));
  if (absl::Now() + interval < deadline) {
    absl::SleepFor(interval);
    MR_RETURN_IF_ERROR(view->Fetch(deadline - absl::Now(), nullptr));
  }
  for (const std::string& text : view->Lines()) std::cout << text << "\n";
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTopFlags(const CommandLine& line) {
  MR_RETURN_IF_ERROR(ParseTopOrder(absl::GetFlag(FLAGS_sort)).status());
  MR_RETURN_IF_ERROR(CheckIntervalFlag(line));
  return CheckHeadFlags(line);
}

int RunTop(const CommandLine& line) {
  const absl::StatusOr<std::unique_ptr<HeadClient>> head =
      HeadClient::FromFlags();
  if (!head.ok()) return Fail(head.status());
  const absl::StatusOr<TopOrder> order =
      ParseTopOrder(absl::GetFlag(FLAGS_sort));
  if (!order.ok()) return Fail(order.status(), kWrongUsage);
  TopView view(head->get(), *order, kMostAsked);
  if (IsScreen(STDOUT_FILENO)) return ShowOnScreen(line, &view);
  return Finish(PrintOnce(line, &view));
}

}  // namespace miniray::cli
