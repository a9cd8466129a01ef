// BaseTrainer: a trainer whose epochs are wholly the user's own.
//
//   class CustomTrainer : public train::BaseTrainer<CustomWorker> {
//    public:
//     using BaseTrainer::BaseTrainer;
//
//    protected:
//     absl::StatusOr<ActorHandle<CustomWorker>> CreateWorker(
//         int worker_id, const train::Config& config) override {
//       return cluster().CreateActor<CustomWorker>(WorkerOptions(worker_id),
//                                                  worker_id);
//     }
//     absl::StatusOr<train::EpochResult> TrainEpoch(int epoch) override {
//       MR_ASSIGN_OR_RETURN(std::vector<double> scores,
//                           CallWorkers<&CustomWorker::Play>(epoch));
//       return train::EpochResult{
//           .metrics = {{"best", *std::max_element(scores.begin(),
//                                                  scores.end())}}};
//     }
//   };

#ifndef MINIRAY_TRAIN_BASE_TRAINER_H_
#define MINIRAY_TRAIN_BASE_TRAINER_H_

#include <memory>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "train/optional_methods.h"
#include "train/trainer_base.h"
#include "train/worker_contract.h"

namespace miniray::train {

// See TrainerBase for what it does and for the hooks.
template <class Worker>
class BaseTrainer : public TrainerBase {
 public:
  using TrainerBase::TrainerBase;

  // By worker_id; empty before Train and after Shutdown.
  const std::vector<ActorHandle<Worker>>& workers() const { return workers_; }

  // How far each worker is in its epoch, by worker_id; empty before Train and
  // after Shutdown. Workers answer while they train. Thread-safe.
  //
  // The class has GetProgress (optional_methods.h), and CreateWorker takes its
  // options from WorkerOptions.
  // Errors: of the first worker that does not answer; DEADLINE_EXCEEDED, one
  // has not within `timeout`.
  absl::StatusOr<std::vector<Progress>> WorkerProgress(
      absl::Duration timeout = absl::InfiniteDuration()) const {
    static_assert(internal::HasProgress<Worker>,
                  "the worker class needs `train::Progress GetProgress() "
                  "const` (or absl::StatusOr of it), listed in its "
                  "MINIRAY_ACTOR");
    std::vector<ObjectRef<Progress>> refs;
    {
      const absl::MutexLock lock(&mu_);
      for (const ActorHandle<Worker>& worker : workers_) {
        refs.push_back(worker.template Call<&Worker::GetProgress>());
      }
    }
    return GetAll(refs, timeout);
  }

  void Shutdown() override {
    {
      const absl::MutexLock lock(&mu_);
      workers_.clear();
      made_.clear();
    }
    TrainerBase::Shutdown();
  }

 protected:
  // As TrainerBase's; the class's GetProgress, if it has one, does not wait for
  // the other methods.
  ActorOptions WorkerOptions(int worker_id) const {
    ActorOptions options = TrainerBase::WorkerOptions(worker_id);
    if constexpr (internal::HasProgress<Worker>) {
      options.concurrency_groups.push_back(
          {.name = "progress",
           .methods = {MethodName<Worker, &Worker::GetProgress>()}});
    }
    return options;
  }

  // Creates one worker: cluster().CreateActor<Worker>(WorkerOptions(worker_id),
  // constructor arguments...).
  //
  // worker_id: from 0 to num_workers() - 1, to max_workers - 1 where that is
  //   more; above that it is an evaluator (TrainerOptions::num_evaluators).
  // config: as given to Train.
  virtual absl::StatusOr<ActorHandle<Worker>> CreateWorker(
      int worker_id, const Config& config) = 0;

  // Calls the TrainEpoch of all workers and averages what they report.
  absl::StatusOr<EpochResult> TrainEpoch(int epoch) override {
    if constexpr (internal::HasTrainEpoch<Worker>) {
      return RunAndAverage(epoch);
    } else {
      return absl::UnimplementedError(
          "the worker class has no `train::Metrics TrainEpoch(int epoch)`, and "
          "the trainer does not override TrainEpoch");
    }
  }

  // Calls a method of all workers with the same arguments and returns the
  // results by worker (only a status if the method returns nothing).
  // Errors: of the first worker that fails, as soon as it does. With
  // FailurePolicy::kHeal, this call alone is repeated on the one in its place.
  template <auto Method, class... Args>
  auto CallWorkers(const Args&... args) {
    using T = internal::ResultOf<Method>;
    using AllResults =
        std::conditional_t<std::is_void_v<T>, absl::Status,
                           absl::StatusOr<std::vector<
                               std::conditional_t<std::is_void_v<T>, int, T>>>>;
    std::vector<ObjectRef<T>> refs(workers_.size());
    const absl::Status status =
        CallAndAwait(MethodName<Worker, Method>(), [&](int id) {
          refs[id] = workers_[id].template Call<Method>(args...);
          return refs[id].state();
        });
    if (!status.ok()) return AllResults(status);
    return AllResults(GetAll(refs));
  }

 private:
  absl::StatusOr<AnyActorHandle> MakeWorker(int worker_id,
                                            const Config& config) final {
    absl::StatusOr<ActorHandle<Worker>> worker =
        CreateWorker(worker_id, config);
    if (!worker.ok()) return worker.status();
    const absl::MutexLock lock(&mu_);
    const size_t id = static_cast<size_t>(worker_id);
    if (made_.size() <= id) made_.resize(id + 1);
    made_[id] = *worker;
    if (id < workers_.size()) workers_[id] = *worker;
    return *std::move(worker);
  }

  void SetNumWorkers(int num_workers) final {
    const absl::MutexLock lock(&mu_);
    workers_.assign(made_.begin(), made_.begin() + num_workers);
  }

  absl::Status CollectNotes(EpochResult* result) final {
    if constexpr (internal::HasNotes<Worker>) {
      if (result->notes.empty()) {
        MR_ASSIGN_OR_RETURN(result->notes, CallWorkers<&Worker::GetNotes>());
      }
    }
    return absl::OkStatus();
  }

  bool WorkersHaveCheckpoints() const final {
    return internal::HasCheckpoint<Worker>;
  }

  bool WorkersHaveProgress() const final {
    return internal::HasProgress<Worker>;
  }

  // Held where workers_ changes, and where a thread beside Train's reads it.
  mutable absl::Mutex mu_;
  std::vector<ActorHandle<Worker>> workers_;
  std::vector<ActorHandle<Worker>> made_;  // Those to be taken in, too.
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_BASE_TRAINER_H_
