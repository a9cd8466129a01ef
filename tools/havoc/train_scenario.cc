#include "tools/havoc/train_scenario.h"

#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "proto/head.pb.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "tools/havoc/learner.h"
#include "tools/havoc/process.h"

namespace miniray::havoc {
namespace {

constexpr int kWorkers = 3;
constexpr int kEpochs = 8;
constexpr absl::Duration kEpochLength = absl::Milliseconds(250);
// No training can be over before.
const absl::Duration kLeastLength = kEpochs * kEpochLength;
// Recovery included.
constexpr absl::Duration kTrainTimeout = absl::Seconds(180);

absl::Status Wrong(const std::string& what) {
  return absl::InternalError(what);
}

// Tells when the first epoch begins.
class StartObserver : public train::Callback {
 public:
  void OnEpochStart(train::TrainContext& context, int epoch) override {
    if (!begun.HasBeenNotified()) begun.Notify();
  }
  absl::Notification begun;
};

// What the plan did.
struct Blow {
  // Actors that it hit, as errors name them: "worker 1", "parameter server".
  std::vector<std::string> hit;
  bool certain = false;  // Training cannot have been over.
};

// The training's living actors, by name: "worker-1", "parameter-server".
absl::StatusOr<std::vector<v1::ActorInfo>> LivingActors(const Cluster& driver) {
  MR_ASSIGN_OR_RETURN(const v1::GetClusterStateResponse state,
                      driver.GetState());
  std::vector<v1::ActorInfo> actors;
  for (const v1::ActorInfo& actor : state.actors()) {
    if (actor.state() == v1::ACTOR_STATE_ALIVE) actors.push_back(actor);
  }
  return actors;
}

std::string SpokenName(const v1::ActorInfo& actor) {
  return absl::StrReplaceAll(actor.name(), {{"-", " "}});
}

// Actors are forked from templates, which the daemon has started.
bool Descends(pid_t pid, pid_t ancestor) {
  while (pid > 1 && pid != ancestor) pid = ParentOf(pid);
  return pid == ancestor;
}

absl::StatusOr<Blow> Strike(const TrainPlan& plan, HavocCluster* cluster,
                            const Cluster& driver) {
  Blow blow;
  if (plan.victim == TrainVictim::kHead) {
    cluster->KillHead();
    absl::SleepFor(plan.head_away);
    MR_RETURN_IF_ERROR(cluster->StartHead());
    return blow;
  }
  MR_ASSIGN_OR_RETURN(const std::vector<v1::ActorInfo> actors,
                      LivingActors(driver));
  const std::string name = plan.victim == TrainVictim::kWorker
                               ? absl::StrCat("worker-", plan.target)
                               : "parameter-server";
  for (const v1::ActorInfo& actor : actors) {
    const pid_t pid = static_cast<pid_t>(actor.pid());
    if (plan.victim == TrainVictim::kDaemon) {
      if (Descends(pid, cluster->node_pid(plan.target))) {
        blow.hit.push_back(SpokenName(actor));
      }
    } else if (actor.name() == name && kill(pid, SIGKILL) == 0) {
      blow.hit.push_back(SpokenName(actor));
    }
  }
  if (plan.victim == TrainVictim::kDaemon) cluster->KillNode(plan.target);
  return blow;
}

absl::Status CheckHistory(const train::Result& result, bool whole) {
  std::vector<int> in_result;
  for (const train::EpochResult& epoch : result.history) {
    in_result.push_back(epoch.epoch);
  }
  std::vector<int> in_file;
  MR_ASSIGN_OR_RETURN(const std::string text,
                      ReadFile(result.path + "/history.jsonl"));
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    MR_ASSIGN_OR_RETURN(const train::EpochResult epoch,
                        train::EpochResult::FromJson(line));
    in_file.push_back(epoch.epoch);
  }
  std::vector<int> expected;
  const size_t count = whole ? kEpochs : in_result.size();
  while (expected.size() < count) {
    expected.push_back(static_cast<int>(expected.size()));
  }
  if (in_result == expected && in_file == expected) return absl::OkStatus();
  return Wrong(absl::StrCat(
      "not each epoch once: Result has ", absl::StrJoin(in_result, " "),
      ", history.jsonl has ", absl::StrJoin(in_file, " ")));
}

// A group goes on from its checkpoint and comes to the same bits. One that is
// healed lacks at most an epoch of the workers that were lost, and their
// momentum: so its loss is no further off than an epoch brings.
absl::Status CheckLoss(const TrainLosses& losses,
                       const TrainLosses& undisturbed, bool exact) {
  const double tolerance = exact ? 0 : undisturbed.before - undisturbed.last;
  if (std::abs(losses.last - undisturbed.last) <= tolerance) {
    return absl::OkStatus();
  }
  return Wrong(absl::StrFormat(
      "the last loss is %.17g; undisturbed it is %.17g, and may differ by %.3g",
      losses.last, undisturbed.last, tolerance));
}

// The right error where no failure is survived: it names one that was hit, and
// what hit it.
absl::Status CheckError(const absl::Status& error, const TrainPlan& plan,
                        const Blow& blow) {
  const bool named = std::any_of(
      blow.hit.begin(), blow.hit.end(), [&](const std::string& name) {
        // By the trainer, or by the runtime, which has the actor's name.
        return absl::StrContains(error.message(), name) ||
               absl::StrContains(error.message(),
                                 absl::StrReplaceAll(name, {{" ", "-"}}));
      });
  if (!named) {
    return Wrong(absl::StrCat("the error does not name ",
                              absl::StrJoin(blow.hit, " or "), ": ",
                              error.ToString()));
  }
  const absl::string_view cause = plan.victim == TrainVictim::kDaemon
                                      ? "was lost"
                                      : "killed by signal 9 (SIGKILL)";
  if (absl::StrContains(error.message(), cause)) return absl::OkStatus();
  return Wrong(
      absl::StrCat("the error does not say '", cause, "': ", error.ToString()));
}

absl::StatusOr<TrainOutcome> Check(const TrainPlan& plan,
                                   const TrainSetting& setting,
                                   const Blow& blow, const absl::Status& status,
                                   const train::Result& result) {
  TrainOutcome outcome;
  if (!status.ok()) {
    if (plan.max_failures > 0 || blow.hit.empty()) {
      return Wrong("Train ended with " + status.ToString());
    }
    MR_RETURN_IF_ERROR(CheckError(status, plan, blow));
    MR_RETURN_IF_ERROR(CheckHistory(result, /*whole=*/false));
    outcome.text = absl::StrCat("ended as it must: ", status.message());
    return outcome;
  }
  MR_RETURN_IF_ERROR(CheckHistory(result, /*whole=*/true));
  outcome.losses = {result.history[kEpochs - 1].metrics.at("loss"),
                    result.history[kEpochs - 2].metrics.at("loss")};
  const size_t failures = result.failures.size();
  outcome.text =
      absl::StrFormat("loss %.6f, %d failure%s survived", outcome.losses.last,
                      failures, failures == 1 ? "" : "s");
  if (blow.hit.empty() && failures > 0) {
    return Wrong(absl::StrCat("nobody was hit, but a failure is told: ",
                              result.failures[0].error.ToString()));
  }
  if (!blow.hit.empty() && blow.certain && failures == 0) {
    return Wrong(absl::StrCat("nothing is told of the loss of ",
                              absl::StrJoin(blow.hit, " and ")));
  }
  if (setting.undisturbed != nullptr) {
    const bool exact = failures == 0 || !plan.heals;
    MR_RETURN_IF_ERROR(CheckLoss(outcome.losses, *setting.undisturbed, exact));
  }
  return outcome;
}

[[noreturn]] void GiveUp(const TrainPlan& plan, HavocCluster* cluster) {
  printf("FAILED: training has not ended after %s (%s); see %s\n",
         absl::FormatDuration(kTrainTimeout).c_str(), Describe(plan).c_str(),
         cluster->HeadLog().c_str());
  fflush(stdout);
  for (int i = 0; i < cluster->num_nodes(); ++i) cluster->KillNode(i);
  cluster->KillHead();
  std::_Exit(1);
}

}  // namespace

TrainPlan MakeTrainPlan(uint64_t seed) {
  std::mt19937_64 random(seed);
  auto milliseconds = [&random](int64_t least, int64_t most) {
    return absl::Milliseconds(
        least + static_cast<int64_t>(random() %
                                     static_cast<uint64_t>(most - least + 1)));
  };
  TrainPlan plan;
  plan.victim = static_cast<TrainVictim>(1 + random() % 4);
  plan.target = static_cast<int>(random() % kWorkers);
  // Early enough to come before the end in any case.
  plan.at = milliseconds(0, absl::ToInt64Milliseconds(kLeastLength) - 100);
  plan.heals = random() % 2 == 1;
  plan.max_failures = random() % 4 == 0 ? 0 : 3;
  plan.head_away = milliseconds(100, 1500);
  return plan;
}

std::string Describe(const TrainPlan& plan) {
  std::string victim;
  switch (plan.victim) {
    case TrainVictim::kNobody:
      return "undisturbed";
    case TrainVictim::kWorker:
      victim = absl::StrCat("worker ", plan.target);
      break;
    case TrainVictim::kParameterServer:
      victim = "parameter server";
      break;
    case TrainVictim::kDaemon:
      victim = absl::StrCat("daemon ", plan.target);
      break;
    case TrainVictim::kHead:
      victim = absl::StrCat("head for ", absl::FormatDuration(plan.head_away));
      break;
  }
  return absl::StrFormat("kill %s at %.3fs, %s, max_failures %d", victim,
                         absl::ToDoubleSeconds(plan.at),
                         plan.heals ? "heal" : "group", plan.max_failures);
}

absl::StatusOr<TrainOutcome> RunTraining(const TrainPlan& plan,
                                         const TrainSetting& setting,
                                         HavocCluster* cluster,
                                         const Cluster& driver) {
  auto observer = std::make_shared<StartObserver>();
  train::TrainerOptions options;
  options.num_workers = kWorkers;
  options.cluster = driver;
  options.storage_path = setting.folder;
  options.name = "training";
  options.checkpoint.frequency = 1;
  options.checkpoint.on_signal = false;  // The program has its own.
  options.failure.max_failures = plan.max_failures;
  options.failure.policy =
      plan.heals ? train::FailurePolicy::kHeal : train::FailurePolicy::kGroup;
  options.callbacks = {observer};
  LearnerTrainer trainer(options);
  absl::Status status;
  absl::Notification done;
  // Beside this thread, which alone may start processes.
  std::thread training([&] {
    status = trainer
                 .Train({.epochs = kEpochs,
                         .config = {{"epoch_seconds",
                                     absl::ToDoubleSeconds(kEpochLength)},
                                    {"forget", setting.forget}}})
                 .status();
    done.Notify();
  });
  absl::StatusOr<Blow> blow = Blow();
  const bool begun = WaitUntil(kTrainTimeout, [&] {
    return observer->begun.HasBeenNotified() || done.HasBeenNotified();
  });
  if (begun && plan.victim != TrainVictim::kNobody) {
    const absl::Time start = absl::Now();
    if (!done.WaitForNotificationWithTimeout(plan.at)) {
      blow = Strike(plan, cluster, driver);
      if (blow.ok()) blow->certain = absl::Now() < start + kLeastLength;
    }
  }
  if (!done.WaitForNotificationWithTimeout(kTrainTimeout)) {
    GiveUp(plan, cluster);
  }
  training.join();
  MR_RETURN_IF_ERROR(blow.status());
  return Check(plan, setting, *blow, status, trainer.last_result());
}

}  // namespace miniray::havoc
