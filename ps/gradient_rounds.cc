// The methods of GradientServer by which workers wait for each other: rounds,
// and bounded staleness.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "ps/gradient_server.h"
#include "runtime/api/miniray.h"

namespace miniray::ps {
namespace {

constexpr absl::Duration kReminderPeriod = absl::Seconds(30);
// That the caller has cancelled the call is seen by looking.
constexpr absl::Duration kCancelPeriod = absl::Milliseconds(200);

bool Cancelled() {
  const ActorContext* const context = ActorContext::Current();
  return context != nullptr && context->cancelled();
}

}  // namespace

absl::Status GradientServer::StepInRound(std::optional<NamedTensors> gradients,
                                         const PushId& id, PushReply* reply) {
  if (round_ == nullptr) round_ = std::make_shared<Round>();
  const std::shared_ptr<Round> round = round_;
  const bool finite = gradients.has_value();
  clocks_.Join(id.worker);
  // One that is sent again takes the place of itself.
  const int64_t call = ++num_calls_;
  round->parts[id.worker] = {
      .id = id, .gradients = std::move(gradients), .call = call};
  FinishRoundIfComplete();
  const absl::Status waited = AwaitOthers(
      id.worker, [&] { return round->done; },
      [this] {
        mu_.AssertReaderHeld();
        return MissingInRound();
      },
      [&] { return static_cast<int64_t>(round->parts.size()); },
      [this] {
        mu_.AssertReaderHeld();
        FinishRoundIfComplete();
      });
  if (!waited.ok()) {
    // The caller may do with its gradients what it likes.
    auto part = round->parts.find(id.worker);
    if (part != round->parts.end() && part->second.call == call) {
      round->parts.erase(part);
    }
    return waited;
  }
  reply->accepted = finite && round->stepped;
  return round->status;
}

std::vector<int> GradientServer::MissingInRound() const {
  std::vector<int> missing;
  if (round_ == nullptr) return missing;
  for (const int worker : clocks_.Active()) {
    if (!round_->parts.contains(worker)) missing.push_back(worker);
  }
  return missing;
}

void GradientServer::FinishRoundIfComplete() {
  if (round_ != nullptr && MissingInRound().empty()) FinishRound();
}

void GradientServer::FinishRound() {
  const std::shared_ptr<Round> round = round_;
  std::vector<Contribution> contributions;
  std::vector<PushId> ids;
  for (auto& [worker, part] : round->parts) {
    ids.push_back(part.id);
    if (!part.gradients.has_value()) {
      ++stats_.refused;
      continue;
    }
    contributions.push_back(
        {.worker_id = worker, .tensors = *std::move(part.gradients)});
  }
  const auto used = static_cast<int64_t>(contributions.size());
  if (contributions.empty()) {
    for (const PushId& id : ids) clocks_.Take(id);
  } else {
    round->status = Step(std::move(contributions), 1, ids, &round->stepped);
    (round->stepped ? stats_.accepted : stats_.refused) += used;
    for (int64_t i = 0; i < used && round->stepped; ++i) {
      CountStaleness(0, &stats_.staleness);
    }
  }
  round->done = true;
  round_ = nullptr;
}

void GradientServer::DissolveRound() {
  if (round_ == nullptr) return;
  stats_.refused += static_cast<int64_t>(round_->parts.size());
  round_->done = true;
  round_ = nullptr;
}

absl::Status GradientServer::AwaitOthers(
    int worker, absl::FunctionRef<bool()> done,
    absl::FunctionRef<std::vector<int>()> holding_up,
    absl::FunctionRef<int64_t()> num_there, absl::FunctionRef<void()> dropped) {
  if (done()) return absl::OkStatus();
  const absl::Time start = absl::Now();
  absl::Time reminder = start + kReminderPeriod;
  const absl::Time deadline = start + timeout_;
  absl::Status status;
  while (!done() && status.ok()) {
    mu_.AwaitWithDeadline(
        absl::Condition(&done),
        std::min({deadline, reminder, absl::Now() + kCancelPeriod}));
    // Who computes a step may be about to end the wait.
    AwaitIdle();
    if (done()) break;
    const absl::Time now = absl::Now();
    if (Cancelled()) {
      status = absl::CancelledError(
          absl::StrCat(NameOf(worker), ": its push is wanted no more"));
    } else if (now >= deadline) {
      const std::vector<int> late = holding_up();
      const bool allowed =
          options_.min_workers > 0 && num_there() >= options_.min_workers;
      const std::string text =
          absl::StrCat(NameOf(worker), " has waited ",
                       absl::FormatDuration(timeout_), " for ", Describe(late));
      if (allowed) {
        for (const int slow : late) clocks_.Leave(slow);
        stats_.dropped_workers += static_cast<int64_t>(late.size());
        Warn(absl::StrCat(text, ": it goes on without"));
        dropped();
      } else {
        status = absl::DeadlineExceededError(
            absl::StrCat(text,
                         "; send the same push again to go on waiting; with "
                         "min_workers it would go on without them"));
      }
    } else if (now >= reminder) {
      LOG(WARNING) << NameOf(worker) << " still waits for "
                   << Describe(holding_up());
      reminder = now + kReminderPeriod;
    }
  }
  stats_.seconds_waited += absl::ToDoubleSeconds(absl::Now() - start);
  return status;
}

std::string GradientServer::Describe(absl::Span<const int> workers) const {
  return absl::StrJoin(workers, ", ", [this](std::string* out, int worker) {
    mu_.AssertReaderHeld();
    absl::StrAppend(out, NameOf(worker), " (", clocks_.Of(worker).clock,
                    " gradients)");
  });
}

}  // namespace miniray::ps
