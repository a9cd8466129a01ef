// One run of a train function on all ranks, as the driver sees it: the barrier
// of the reports, and who failed first.

#ifndef MINIRAY_TRAIN_FUNCTIONS_GENERATION_H_
#define MINIRAY_TRAIN_FUNCTIONS_GENERATION_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/api/miniray.h"
#include "train/functions/messages.h"
#include "train/functions/worker_group.h"

namespace miniray::train {

// When the ranks of a group came to a report, in seconds since the last one.
struct ReportTimes {
  double last = 0;
  double mean = 0;
};

// Takes the reports of all ranks, by rank, and says how to go on.
using TakeReports =
    std::function<ReportReply(std::vector<RankReport>, const ReportTimes&)>;

struct GenerationEnd {
  absl::Status status;  // The first real failure.
  int rank = -1;        // Whose it is; -1: of no single one.
  // Ranks whose processes are dead, or do not listen any more.
  std::vector<int> lost;
};

// Not thread-safe.
class Generation {
 public:
  struct Options {
    absl::Duration report_timeout;  // See RunConfig, for all three.
    absl::Duration hang_timeout = absl::InfiniteDuration();
    absl::Duration abort_timeout;
    // Called after each report and at least once a second, as long as nothing
    // fails; must not block. May be empty.
    std::function<void()> at_turn;
  };

  // starts: by rank. shared: what all ranks get besides. group: lives as long.
  Generation(WorkerGroup& group, Options options,
             std::vector<GenerationStart> starts, ObjectRef<SharedStart> shared,
             TakeReports take_reports);

  // Runs the function on all ranks until it has returned everywhere, or the
  // first rank fails: then the others are told to stop, and have abort_timeout
  // to do so. Exceptions of take_reports pass through; the function runs on
  // then.
  GenerationEnd Run();

 private:
  using Clock = std::chrono::steady_clock;

  struct Rank {
    ObjectRef<RunOutcome> run;
    ObjectRef<std::optional<RankReport>> next_report;
    std::optional<RankReport> report;  // Waits for the others.
    std::optional<RunOutcome> outcome;
    absl::Status lost;  // Its process is.
  };
  struct Failure {
    int rank = -1;
    absl::Status status;
    int weight = 0;  // The greatest is the likeliest cause.
  };

  bool ended(const Rank& rank) const {
    return rank.outcome.has_value() || !rank.lost.ok();
  }
  void Ask(int rank);
  // Waits until something happens, at most so long, and takes it in.
  void Await(absl::Duration timeout);
  void TakeIn(int rank);
  void TakeOutcome(int rank, absl::StatusOr<RunOutcome> outcome);
  // All have reported: lets them go on.
  void Release();
  // Finds ranks that do not come, or came to another end than others.
  void CheckBarrier();
  // What the others wait for: the ranks without a report, and what they do.
  std::string Missing() const;
  void Fail(int rank, absl::Status status, int weight);
  // After the first failure.
  GenerationEnd Stop();

  WorkerGroup& group_;
  const Options options_;
  const std::vector<GenerationStart> starts_;
  const ObjectRef<SharedStart> shared_;
  const int generation_;
  const TakeReports take_reports_;
  std::vector<Rank> ranks_;
  int next_report_;
  Clock::time_point round_start_;            // All went on.
  std::vector<Clock::time_point> arrivals_;  // In this round.
  std::optional<Clock::time_point> reminded_;
  std::vector<Failure> failures_;  // As they came.
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_FUNCTIONS_GENERATION_H_
