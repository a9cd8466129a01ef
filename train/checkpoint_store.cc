#include "train/checkpoint_store.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "runtime/base/backoff.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {
namespace {

namespace fs = std::filesystem;

constexpr char kRemoved[] = ".removed";
constexpr char kPart[] = ".part";
constexpr char kSuperseded[] = ".superseded";

// Between two tries to write a checkpoint.
constexpr absl::Duration kLongestPause = absl::Seconds(30);

// Where somebody waits for it: the first pause, and how many tries there are
// beyond the one that ends the wait for the next.
constexpr absl::Duration kFirstAwaitedPause = absl::Milliseconds(200);
constexpr int kAwaitedTries = 3;

// A checkpoint's name without this ending; empty if it is none.
std::string NameWithout(const std::string& name, const std::string& ending) {
  if (!absl::EndsWith(name, ending)) return "";
  std::string rest = name.substr(0, name.size() - ending.size());
  return EpochsOfCheckpointName(rest).has_value() ? rest : "";
}

// Names of what the folder holds.
absl::StatusOr<std::vector<std::string>> List(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("list ", folder));
  return names;
}

// Epochs of all checkpoints, whole or not, ascending.
absl::StatusOr<std::set<int>> ListEpochs(const std::string& folder) {
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> names, List(folder));
  std::set<int> epochs;
  for (const std::string& name : names) {
    if (const auto n = EpochsOfCheckpointName(name)) epochs.insert(*n);
  }
  return epochs;
}

absl::Status Rename(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (!error) return absl::OkStatus();
  return ErrnoStatus(error.value(), absl::StrCat("rename ", from, " to ", to));
}

absl::Status RemoveAll(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) return absl::OkStatus();
  return ErrnoStatus(error.value(), absl::StrCat("remove ", path));
}

// What the checkpoint is called once it is set aside: those that have been
// before stay.
std::string NameAside(const std::string& path) {
  const std::string first = path + kSuperseded;
  std::string name = first;
  std::error_code error;
  for (int i = 2; fs::exists(name, error); ++i) {
    name = absl::StrCat(first, ".", i);
  }
  return name;
}

// Under another name first: what is left of a folder that is half removed is no
// checkpoint.
absl::Status RemoveCheckpoint(const std::string& path) {
  const std::string removed = path + kRemoved;
  MR_RETURN_IF_ERROR(Rename(path, removed));
  return RemoveAll(removed);
}

absl::StatusOr<CheckpointInfo> TryToWrite(const std::string& path,
                                          const Checkpoint& checkpoint) {
  try {
    return WriteCheckpoint(path, checkpoint);
  } catch (const std::exception& error) {  // No memory.
    return absl::InternalError(absl::StrCat(path, ": ", error.what()));
  }
}

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, CheckpointConfig config,
                                 absl::Duration first_pause)
    : folder_(std::move(folder)),
      config_(std::move(config)),
      first_pause_(first_pause) {}

CheckpointStore::~CheckpointStore() { MakeWay(); }

std::string CheckpointStore::PathOf(int epochs) const {
  return absl::StrCat(folder_, "/", CheckpointName(epochs));
}

absl::StatusOr<std::optional<Checkpoint>> CheckpointStore::ReadLast(
    std::vector<std::string>* warnings) const {
  MR_ASSIGN_OR_RETURN(const std::set<int> epochs, ListEpochs(folder_));
  for (auto it = epochs.rbegin(); it != epochs.rend(); ++it) {
    absl::StatusOr<Checkpoint> checkpoint = ReadCheckpoint(PathOf(*it));
    if (checkpoint.ok()) return *std::move(checkpoint);
    // What cannot be read now may be whole: to go on without it would put it
    // aside.
    if (!absl::IsDataLoss(checkpoint.status())) return checkpoint.status();
    warnings->push_back(absl::StrCat("a checkpoint is passed over: ",
                                     checkpoint.status().message()));
  }
  if (epochs.empty()) return std::nullopt;
  return absl::DataLossError(
      absl::StrCat("none of the ", epochs.size(), " checkpoints in ", folder_,
                   " is good: ", absl::StrJoin(*warnings, "; "),
                   "; to begin anew, use another name or remove them"));
}

absl::Status CheckpointStore::BeginAt(int epochs,
                                      std::vector<std::string>* warnings) {
  kept_.clear();
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> names, List(folder_));
  for (const std::string& name : names) {
    if (NameWithout(name, kPart).empty() &&
        NameWithout(name, kRemoved).empty()) {
      continue;
    }
    MR_RETURN_IF_ERROR(RemoveAll(absl::StrCat(folder_, "/", name)));
  }
  MR_ASSIGN_OR_RETURN(const std::set<int> found, ListEpochs(folder_));
  for (const int n : found) {
    absl::StatusOr<CheckpointInfo> info = DescribeCheckpoint(PathOf(n));
    if (n <= epochs && info.ok()) {
      kept_.push_back(*std::move(info));
      continue;
    }
    if (!info.ok() && !absl::IsDataLoss(info.status())) return info.status();
    // Later, or damaged.
    const std::string aside = NameAside(PathOf(n));
    MR_RETURN_IF_ERROR(Rename(PathOf(n), aside));
    warnings->push_back(
        absl::StrCat(PathOf(n), " is ",
                     n > epochs ? "later than what is gone on with" : "damaged",
                     "; it is ", aside, " now"));
  }
  return absl::OkStatus();
}

void CheckpointStore::Write(Checkpoint checkpoint) {
  CHECK(!writing());
  {
    const absl::MutexLock lock(&mu_);
    state_ = State::kTries;
    urgency_ = Urgency::kNone;
  }
  writer_ = std::thread([this, checkpoint = std::move(checkpoint)] {
    Run(checkpoint);
    const absl::MutexLock lock(&mu_);
    state_ = State::kEnded;
  });
}

std::optional<CheckpointStore::Outcome> CheckpointStore::Poll() {
  {
    const absl::MutexLock lock(&mu_);
    if (state_ != State::kEnded) return std::nullopt;
  }
  return Wait();
}

std::optional<CheckpointStore::Outcome> CheckpointStore::Wait() {
  return Finish(Urgency::kAwaited);
}

std::optional<CheckpointStore::Outcome> CheckpointStore::MakeWay() {
  return Finish(Urgency::kGivenUp);
}

std::optional<CheckpointStore::Outcome> CheckpointStore::Finish(
    Urgency urgency) {
  if (writing()) {
    {
      const absl::MutexLock lock(&mu_);
      urgency_ = urgency;
    }
    writer_.join();
  }
  return std::exchange(outcome_, std::nullopt);
}

bool CheckpointStore::AwaitTry() {
  const auto is_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return state_ != State::kTries;
  };
  {
    const absl::MutexLock lock(&mu_, absl::Condition(&is_over));
    if (state_ == State::kPauses) return false;
  }
  if (writing()) writer_.join();  // It has ended, or is about to.
  return !outcome_.has_value() || outcome_->written.ok();
}

void CheckpointStore::Run(const Checkpoint& checkpoint) {
  const absl::Time begin = absl::Now();
  const std::string path = PathOf(checkpoint.epochs());
  Backoff pauses(first_pause_, kLongestPause);
  Backoff awaited_pauses(kFirstAwaitedPause, kLongestPause);
  Urgency urgency = Urgency::kNone;
  int tries = 1;
  int awaited_tries = 0;
  absl::StatusOr<CheckpointInfo> written;
  while (!(written = TryToWrite(path, checkpoint)).ok()) {
    const bool awaited = urgency == Urgency::kAwaited;
    LOG(WARNING) << "try " << tries
                 << " to write a checkpoint: " << written.status().message();
    if (awaited && awaited_tries++ == kAwaitedTries) break;
    urgency = Pause((awaited ? awaited_pauses : pauses).Next(), urgency);
    if (urgency == Urgency::kGivenUp) break;
    ++tries;
  }
  outcome_ = Outcome{.written = std::move(written)};
  if (outcome_->written.ok()) {
    kept_.push_back(*outcome_->written);
    Prune(&outcome_->warnings);
    return;
  }
  const absl::Status& status = outcome_->written.status();
  outcome_->written = absl::Status(
      status.code(),
      absl::StrCat(status.message(), "; it is given up",
                   urgency == Urgency::kGivenUp ? " for a newer one" : "",
                   ", tried ", tries, tries == 1 ? " time in " : " times in ",
                   absl::FormatDuration(absl::Trunc(absl::Now() - begin,
                                                    absl::Milliseconds(1)))));
}

CheckpointStore::Urgency CheckpointStore::Pause(absl::Duration pause,
                                                Urgency before) {
  const auto has_changed = [this, before]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return urgency_ != before;
  };
  const absl::MutexLock lock(&mu_);
  state_ = State::kPauses;
  mu_.AwaitWithTimeout(absl::Condition(&has_changed), pause);
  state_ = State::kTries;
  return urgency_;
}

std::vector<CheckpointInfo> CheckpointStore::ByWorth() const {
  std::vector<CheckpointInfo> by_worth = kept_;
  std::stable_sort(by_worth.begin(), by_worth.end(),
                   [&](const CheckpointInfo& a, const CheckpointInfo& b) {
                     if (!config_.score_metric.empty()) {
                       const double score_a = ScoreOf(config_, a.metrics);
                       const double score_b = ScoreOf(config_, b.metrics);
                       if (score_a != score_b) return score_a > score_b;
                     }
                     return a.epochs > b.epochs;
                   });
  return by_worth;
}

void CheckpointStore::Prune(std::vector<std::string>* warnings) {
  const auto limit = static_cast<size_t>(config_.num_to_keep);
  if (limit == 0 || kept_.size() <= limit) return;
  const std::vector<CheckpointInfo> by_worth = ByWorth();
  std::set<int> keep = {kept_.back().epochs};
  for (size_t i = 0; i < limit; ++i) keep.insert(by_worth[i].epochs);
  std::vector<CheckpointInfo> left;
  for (CheckpointInfo& info : kept_) {
    if (!keep.contains(info.epochs)) {
      const absl::Status removed = RemoveCheckpoint(info.path);
      if (removed.ok()) continue;
      warnings->push_back(absl::StrCat(
          "a checkpoint beyond num_to_keep stays: ", removed.message()));
      std::error_code error;
      if (!fs::exists(info.path, error) && !error) continue;  // Half removed.
    }
    left.push_back(std::move(info));
  }
  kept_ = std::move(left);
}

void CheckpointStore::Tell(Result* result) const {
  result->checkpoint = kept_.empty() ? "" : kept_.back().path;
  result->best_checkpoint.clear();
  result->best_checkpoints.clear();
  std::vector<CheckpointInfo> by_worth = ByWorth();
  for (CheckpointInfo& info : by_worth) {
    result->best_checkpoints.push_back({.path = std::move(info.path),
                                        .epochs = info.epochs,
                                        .metrics = std::move(info.metrics)});
  }
  if (!config_.score_metric.empty() && !kept_.empty()) {
    result->best_checkpoint = result->best_checkpoints.front().path;
  }
}

}  // namespace miniray::train
