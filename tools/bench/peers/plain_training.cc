#include "tools/bench/peers/plain_training.h"

#include <optional>
#include <sstream>
#include <string>

#include "ATen/Parallel.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/peers/actor_environment.h"
#include "tools/bench/training_task.h"
#include "train/state_dict.h"

namespace miniray::bench {
namespace {

// Returns the mean loss.
double TrainPlainEpoch(TrainingTask& task) {
  double loss_sum = 0;
  std::vector<at::Tensor> parameters = task.network.parameters();
  const int64_t batches = task.num_batches();
  for (int64_t batch = 0; batch < batches; ++batch) {
    // Like zero_grad, but the next gradients need not be added to zeros.
    for (at::Tensor& parameter : parameters) {
      parameter.mutable_grad() = at::Tensor();
    }
    const at::Tensor loss = task.Loss(batch);
    loss.backward();
    task.optimizer.step();
    loss_sum += loss.item<double>();
  }
  return loss_sum / static_cast<double>(batches);
}

}  // namespace

int ServePlainTraining() {
  at::set_num_threads(1);
  std::optional<TrainingTask> task;
  double loss = 0;
  return ServeCommands(
      [&](const std::string& command) -> absl::StatusOr<std::string> {
        std::istringstream words(command);
        std::string verb;
        words >> verb;
        if (verb == "open") {
          int shard = 0;
          int64_t samples = 0, batch_size = 0;
          words >> shard >> samples >> batch_size;
          task.emplace(shard, samples, batch_size);
          // As the workers' lie: where weights lie decides how fast they are.
          train::ShareParameters(task->network);
          loss = TrainPlainEpoch(*task);
          return "ready";
        }
        if (!task.has_value()) {
          return absl::FailedPreconditionError("'open' comes first");
        }
        if (verb == "loss") return absl::StrFormat("%.17g", loss);
        int epochs = 0;
        if (verb != "train" || !(words >> epochs)) {
          return absl::InvalidArgumentError(
              absl::StrCat("no such command: ", command));
        }
        const absl::Time start = absl::Now();
        for (int i = 0; i < epochs; ++i) loss = TrainPlainEpoch(*task);
        const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
        const auto samples = static_cast<double>(epochs * task->num_batches() *
                                                 task->batch_size);
        return absl::StrCat(samples / seconds);
      });
}

absl::StatusOr<std::unique_ptr<PlainTraining>> PlainTraining::Start(
    int processes, int64_t samples, int64_t batch_size) {
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < processes; ++i) {
    MR_ASSIGN_OR_RETURN(
        std::unique_ptr<Child> child,
        Child::Start(kPlainTrainingRole, {}, ActorEnvironment()));
    MR_RETURN_IF_ERROR(
        child->Ask(absl::StrCat("open ", i, " ", samples, " ", batch_size))
            .status());
    children.push_back(std::move(child));
  }
  // Whole batches.
  const int64_t epoch_samples = processes * (samples / batch_size) * batch_size;
  return absl::WrapUnique(
      new PlainTraining(std::move(children), epoch_samples));
}

absl::StatusOr<double> PlainTraining::Train(int epochs) {
  MR_ASSIGN_OR_RETURN(const std::vector<double> rates,
                      AskAll(processes_, absl::StrCat("train ", epochs)));
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

absl::StatusOr<double> PlainTraining::TrainInStep(int epochs) {
  const absl::Time start = absl::Now();
  for (int i = 0; i < epochs; ++i) {
    MR_RETURN_IF_ERROR(AskAll(processes_, "train 1").status());
  }
  return static_cast<double>(epochs * epoch_samples_) /
         absl::ToDoubleSeconds(absl::Now() - start);
}

}  // namespace miniray::bench
