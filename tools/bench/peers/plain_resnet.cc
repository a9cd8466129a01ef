#include "tools/bench/peers/plain_resnet.h"

#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/child.h"
#include "tools/bench/peers/actor_environment.h"
#include "tools/bench/resnet_training.h"

namespace miniray::bench {

int ServePlainResNet() {
  at::set_num_threads(1);
  std::optional<ResNetTraining> training;
  return ServeCommands(
      [&](const std::string& command) -> absl::StatusOr<std::string> {
        std::istringstream words(command);
        std::string verb;
        words >> verb;
        if (verb == "open") {
          int shard = 0;
          int64_t batch_size = 0;
          words >> shard >> batch_size;
          training.emplace(ResNet20(), shard, batch_size);
          return absl::StrCat(training->num_parameters());
        }
        int64_t steps = 0;
        if (verb != "train" || !(words >> steps) || !training.has_value()) {
          return absl::InvalidArgumentError(absl::StrCat(
              "no such command, or 'open' comes first: ", command));
        }
        return absl::StrCat(training->Train(steps));
      });
}

absl::StatusOr<ResNetPace> TrainPlainResNets(const ResNetWork& work) {
  ResNetPace pace;
  std::vector<std::unique_ptr<Child>> processes;
  for (int i = 0; i < work.ranks; ++i) {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<Child> process,
                        Child::Start(kPlainResNetRole, {}, ActorEnvironment()));
    MR_ASSIGN_OR_RETURN(
        const double parameters,
        process->AskNumber(absl::StrCat("open ", i, " ", work.batch_size)));
    pace.num_parameters = static_cast<int64_t>(parameters);
    processes.push_back(std::move(process));
  }
  MR_RETURN_IF_ERROR(
      AskAll(processes, absl::StrCat("train ", work.warm_up)).status());
  MR_ASSIGN_OR_RETURN(const std::vector<double> rates,
                      AskAll(processes, absl::StrCat("train ", work.steps)));
  for (const double rate : rates) pace.samples_per_second += rate;
  return pace;
}

}  // namespace miniray::bench
