#include "train/functions/generation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "runtime/base/status_macros.h"
#include "train/waits.h"

namespace miniray::train {
namespace {

// How long another rank's failure may take to be known here where it may be the
// cause of the first: that of one that says so itself, and of any other.
constexpr absl::Duration kPeerGrace = absl::Seconds(2);
constexpr absl::Duration kGrace = absl::Milliseconds(300);

// How long ranks have to say what they do, for an error; and the end of a call
// may come behind that of another to the same process.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(2);

// The log names those who keep the others waiting so often.
constexpr absl::Duration kRemindPeriod = absl::Seconds(30);

constexpr absl::Duration kShortestTurn = absl::Milliseconds(5);
constexpr absl::Duration kLongestTurn = absl::Seconds(1);

constexpr size_t kMaxOtherFailures = 3;

// Weights of failures.
constexpr int kPeerFailed = 0;
constexpr int kFailed = 1;
constexpr int kDied = 2;

absl::Duration Since(std::chrono::steady_clock::time_point time) {
  return absl::FromChrono(std::chrono::steady_clock::now() - time);
}

}  // namespace

Generation::Generation(WorkerGroup& group, Options options,
                       std::vector<GenerationStart> starts,
                       ObjectRef<SharedStart> shared, TakeReports take_reports)
    : group_(group),
      options_(std::move(options)),
      starts_(std::move(starts)),
      shared_(std::move(shared)),
      generation_(starts_.at(0).generation),
      take_reports_(std::move(take_reports)),
      ranks_(starts_.size()),
      next_report_(starts_.at(0).first_report) {}

GenerationEnd Generation::Run() {
  using W = TrainFunctionWorker;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    ranks_[i].run =
        group_.worker(static_cast<int>(i)).Call<&W::Run>(starts_[i], shared_);
    Ask(static_cast<int>(i));
  }
  round_start_ = Clock::now();
  const absl::Duration turn =
      std::clamp(std::min(options_.report_timeout, options_.hang_timeout) / 4,
                 kShortestTurn, kLongestTurn);
  while (true) {
    Await(turn);
    if (!failures_.empty()) return Stop();
    if (options_.at_turn) options_.at_turn();
    const auto num_reports =
        std::count_if(ranks_.begin(), ranks_.end(),
                      [](const Rank& rank) { return rank.report.has_value(); });
    if (static_cast<size_t>(num_reports) == ranks_.size()) {
      Release();
      continue;
    }
    if (std::all_of(ranks_.begin(), ranks_.end(),
                    [this](const Rank& rank) { return ended(rank); })) {
      return {};
    }
    CheckBarrier();
    if (!failures_.empty()) return Stop();
  }
}

void Generation::Ask(int rank) {
  ranks_[rank].next_report =
      group_.worker(rank).Call<&TrainFunctionWorker::NextReport>(generation_,
                                                                 next_report_);
}

void Generation::Await(absl::Duration timeout) {
  std::vector<std::shared_ptr<miniray::internal::CallState>> calls;
  for (const Rank& rank : ranks_) {
    if (!ended(rank)) calls.push_back(rank.run.state());
    if (rank.next_report.state() != nullptr) {
      calls.push_back(rank.next_report.state());
    }
  }
  miniray::internal::WaitForCalls(calls, std::min<size_t>(1, calls.size()),
                                  timeout);
  for (size_t i = 0; i < ranks_.size(); ++i) TakeIn(static_cast<int>(i));
}

void Generation::TakeIn(int rank) {
  Rank& state = ranks_[rank];
  if (state.next_report.ready()) {
    // A large one may lie with the worker still.
    absl::StatusOr<std::optional<RankReport>> report =
        std::exchange(state.next_report, {}).Get(options_.report_timeout);
    if (report.ok() && report->has_value()) {
      state.report = **std::move(report);
      arrivals_.push_back(Clock::now());
    } else if (!report.ok() && !ended(state)) {
      // Its process has died, most likely: then `run` tells how.
      absl::StatusOr<RunOutcome> outcome = state.run.Get(kAnswerTimeout);
      TakeOutcome(rank, absl::IsDeadlineExceeded(outcome.status())
                            ? report.status()
                            : std::move(outcome));
    }  // None: the function ends, of which `run` tells.
  }
  if (!ended(state) && state.run.ready()) {
    TakeOutcome(rank, state.run.Get(options_.report_timeout));
  }
}

void Generation::TakeOutcome(int rank, absl::StatusOr<RunOutcome> outcome) {
  Rank& state = ranks_[rank];
  if (!outcome.ok()) {
    state.lost = outcome.status();
    Fail(rank, state.lost, kDied);
    return;
  }
  state.outcome = *std::move(outcome);
  if (state.outcome->code == 0) return;
  Fail(rank,
       absl::Status(static_cast<absl::StatusCode>(state.outcome->code),
                    state.outcome->message),
       state.outcome->peer_failed ? kPeerFailed : kFailed);
}

void Generation::Release() {
  const auto seconds = [this](Clock::time_point time) {
    return absl::ToDoubleSeconds(absl::FromChrono(time - round_start_));
  };
  ReportTimes times = {.last = seconds(arrivals_.back())};
  for (const Clock::time_point time : arrivals_) {
    times.mean += seconds(time) / static_cast<double>(arrivals_.size());
  }
  std::vector<RankReport> reports;
  for (Rank& rank : ranks_) {
    reports.push_back(*std::exchange(rank.report, std::nullopt));
  }
  const ReportReply reply = take_reports_(std::move(reports), times);
  const int number = next_report_++;
  arrivals_.clear();
  reminded_.reset();
  round_start_ = Clock::now();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const int rank = static_cast<int>(i);
    group_.worker(rank).Call<&TrainFunctionWorker::Release>(generation_, number,
                                                            reply);
    Ask(rank);
  }
}

void Generation::CheckBarrier() {
  if (!arrivals_.empty()) {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (!ranks_[i].outcome.has_value()) continue;
      Fail(static_cast<int>(i),
           absl::FailedPreconditionError(absl::StrCat(
               "the train function has returned after ",
               ranks_[i].outcome->num_reports,
               " reports, and another rank waits in one more: all ranks must "
               "call Report equally often")),
           kFailed);
      return;
    }
    if (!reminded_.has_value()) reminded_ = arrivals_.front();
    if (Since(*reminded_) >= kRemindPeriod) {
      reminded_ = Clock::now();
      LOG(WARNING) << "report " << next_report_ << " waits for " << Missing();
    }
  }
  std::string limit;
  if (!arrivals_.empty() &&
      Since(arrivals_.front()) >= options_.report_timeout) {
    limit = absl::StrCat(absl::FormatDuration(options_.report_timeout),
                         " of the first rank (run.report_timeout)");
  } else if (Since(round_start_) >= options_.hang_timeout) {
    limit = absl::StrCat(absl::FormatDuration(options_.hang_timeout),
                         " of the report before (failure.hang_timeout)");
  } else {
    return;
  }
  int missing = -1;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].report.has_value()) missing = static_cast<int>(i);
  }
  failures_.push_back(
      {.rank = arrivals_.size() + 1 == ranks_.size() ? missing : -1,
       .status = absl::DeadlineExceededError(
           absl::StrCat("report ", next_report_, ": ", arrivals_.size(), " of ",
                        ranks_.size(), " ranks have come to it within ", limit,
                        "; missing: ", Missing())),
       .weight = kFailed});
}

std::string Generation::Missing() const {
  std::vector<ObjectRef<std::string>> stages(ranks_.size());
  std::vector<std::shared_ptr<miniray::internal::CallState>> calls;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].report.has_value() || ended(ranks_[i])) continue;
    stages[i] = group_.worker(static_cast<int>(i))
                    .Call<&TrainFunctionWorker::Stage>(generation_);
    calls.push_back(stages[i].state());
  }
  miniray::internal::WaitForCalls(calls, calls.size(), kAnswerTimeout);
  std::vector<std::string> missing;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (stages[i].state() == nullptr) continue;
    const absl::StatusOr<std::string> stage =
        stages[i].Get(absl::ZeroDuration());
    missing.push_back(
        absl::StrCat(group_.NameOf(static_cast<int>(i)), ", which ",
                     stage.ok() ? *stage : "does not answer either"));
  }
  return absl::StrJoin(missing, "; ");
}

void Generation::Fail(int rank, absl::Status status, int weight) {
  failures_.push_back({.rank = rank,
                       .status = Annotate(status, group_.NameOf(rank)),
                       .weight = weight});
}

GenerationEnd Generation::Stop() {
  const auto await_all = [this](absl::Duration timeout, auto is_over) {
    const Clock::time_point begin = Clock::now();
    while (!is_over()) {
      const absl::Duration left = timeout - Since(begin);
      if (left <= absl::ZeroDuration()) return;
      Await(std::min(left, kLongestTurn));
    }
  };
  const auto all_ended = [this] {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [this](const Rank& rank) { return ended(rank); });
  };
  const auto weight = [this] {
    int max = 0;
    for (const Failure& failure : failures_)
      max = std::max(max, failure.weight);
    return max;
  };
  std::string suspects;
  if (weight() == kPeerFailed) {
    LOG(INFO) << "the cause is looked for among the other ranks: "
              << failures_.front().status.message();
    await_all(kPeerGrace,
              [&] { return all_ended() || weight() > kPeerFailed; });
    // One of those who have not failed keeps the others waiting.
    if (weight() == kPeerFailed && !all_ended()) suspects = Missing();
  }
  if (weight() < kDied) {
    await_all(kGrace, [&] { return all_ended() || weight() == kDied; });
  }
  const auto first = std::find_if(
      failures_.begin(), failures_.end(),
      [&](const Failure& failure) { return failure.weight == weight(); });
  GenerationEnd end = {.status = first->status, .rank = first->rank};
  if (!suspects.empty() && weight() == kPeerFailed) {
    end.status = absl::Status(
        end.status.code(),
        absl::StrCat(end.status.message(), "; has not failed: ", suspects));
  }
  std::vector<std::string> others;
  for (auto it = failures_.begin(); it != failures_.end(); ++it) {
    if (it == first || it->weight == kPeerFailed ||
        others.size() == kMaxOtherFailures) {
      continue;
    }
    others.emplace_back(it->status.message());
  }
  if (!others.empty()) {
    end.status =
        absl::Status(end.status.code(),
                     absl::StrCat(end.status.message(),
                                  "; also: ", absl::StrJoin(others, "; ")));
  }

  const std::string reason =
      absl::StrCat("the group stops: ", first->status.message());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ended(ranks_[i])) continue;
    group_.worker(static_cast<int>(i))
        .Call<&TrainFunctionWorker::Abort>(generation_, reason);
  }
  await_all(options_.abort_timeout, all_ended);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (!ended(ranks_[i])) {
      LOG(WARNING) << group_.NameOf(rank) << " has not left the train function "
                   << absl::FormatDuration(options_.abort_timeout)
                   << " after it was told to: its process is ended";
    }
    if (!ranks_[i].outcome.has_value()) end.lost.push_back(rank);
  }
  return end;
}

}  // namespace miniray::train
