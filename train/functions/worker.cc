#include "train/functions/worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "train/functions/run_function.h"

namespace miniray::train {

std::vector<ConcurrencyGroup> TrainFunctionWorker::Groups() {
  using W = TrainFunctionWorker;
  return {{.name = "reports", .methods = {MethodName<&W::NextReport>()}},
          // A handler of OnAbort keeps nobody from hearing of the stage.
          {.name = "control",
           .max_concurrency = 2,
           .methods = {MethodName<&W::Release>(), MethodName<&W::Abort>(),
                       MethodName<&W::Stage>()}}};
}

RunOutcome TrainFunctionWorker::Run(GenerationStart start, SharedStart shared) {
  const std::string function = start.function;
  const int generation = start.generation;
  const auto context = std::make_shared<Context>(
      std::move(start), static_cast<ReportSink&>(*this), std::move(shared));
  {
    const absl::MutexLock lock(&mu_);
    if (aborted_ >= generation) {
      return {.code = static_cast<int>(absl::StatusCode::kAborted),
              .message = abort_reason_,
              .peer_failed = true};
    }
    generation_ = generation;
    report_.reset();
    reply_.reset();
    context_ = context;
  }
  RunOutcome outcome = RunTrainFunction(function, *context);
  const absl::MutexLock lock(&mu_);
  ended_ = generation;
  context_.reset();
  report_.reset();
  return outcome;
}

std::optional<RankReport> TrainFunctionWorker::NextReport(int generation,
                                                          int number) {
  const absl::MutexLock lock(&mu_);
  const auto is_there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return ended_ >= generation || aborted_ >= generation ||
           (generation_ == generation && report_.has_value() &&
            report_->number == number);
  };
  mu_.Await(absl::Condition(&is_there));
  if (ended_ >= generation || aborted_ >= generation) return std::nullopt;
  return std::exchange(*report_, {.number = number});
}

void TrainFunctionWorker::Release(int generation, int number,
                                  const ReportReply& reply) {
  const absl::MutexLock lock(&mu_);
  if (generation_ == generation && report_.has_value() &&
      report_->number == number) {
    reply_ = reply;
  }
}

void TrainFunctionWorker::Abort(int generation, const std::string& reason) {
  std::shared_ptr<Context> context;
  {
    const absl::MutexLock lock(&mu_);
    if (aborted_ >= generation) return;
    aborted_ = generation;
    abort_reason_ = reason;
    if (generation_ <= generation) context = context_;
  }
  if (context != nullptr) context->Abort(absl::AbortedError(reason));
}

std::string TrainFunctionWorker::Stage(int generation) const {
  const absl::MutexLock lock(&mu_);
  if (generation_ < generation) return "has not begun";
  if (ended_ >= generation || context_ == nullptr) return "has ended";
  return context_->Stage();
}

absl::StatusOr<ReportReply> TrainFunctionWorker::Exchange(RankReport report) {
  const absl::MutexLock lock(&mu_);
  report_ = std::move(report);
  reply_.reset();
  const auto is_answered = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return reply_.has_value() || aborted_ >= generation_;
  };
  mu_.Await(absl::Condition(&is_answered));
  report_.reset();
  if (reply_.has_value()) return *std::exchange(reply_, std::nullopt);
  return absl::AbortedError(abort_reason_);
}

}  // namespace miniray::train
