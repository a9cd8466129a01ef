// A rank in a process of its own.

#ifndef MINIRAY_TESTS_TRAIN_COLLECTIVE_RANK_WORKER_H_
#define MINIRAY_TESTS_TRAIN_COLLECTIVE_RANK_WORKER_H_

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "runtime/api/miniray.h"
#include "runtime/base/status_macros.h"
#include "torch/torch.h"
#include "train/collective/collective_error.h"
#include "train/collective/distributed_module.h"
#include "train/collective/process_group.h"

namespace miniray::train {

class RankWorker {
 public:
  explicit RankWorker(int rank) : rank_(rank) {}

  static ActorOptions Options() {
    ActorOptions options;
    options.concurrency_groups = {
        {.name = "control",
         .methods = {MethodName<&RankWorker::Abort>(),
                     MethodName<&RankWorker::Steps>(),
                     MethodName<&RankWorker::Waits>()}}};
    return options;
  }

  int64_t Pid() const { return getpid(); }

  absl::Status Start(const ActorHandle<RendezvousStore>& store,
                     int world_size) {
    MR_ASSIGN_OR_RETURN(const std::string address,
                        CollectiveAddress(ActorContext::Current()->cluster()));
    auto group = std::make_shared<ProcessGroup>(ProcessGroup::Options{
        .rank = rank_, .world_size = world_size, .address = address});
    {
      absl::MutexLock lock(&mu_);
      group_ = group;
      steps_ = 0;
    }
    return group->Start(store);
  }

  std::string Address() const { return Group()->options().address; }

  absl::StatusOr<int64_t> Sum(int64_t value) {
    return Group()->AllReduce(value, ReduceOp::kSum);
  }

  // Waits for ranks that do not come.
  absl::Status Barrier() { return Group()->Barrier(); }

  // All-reduces `numel` floats again and again, until that fails.
  absl::Status Reduce(int64_t numel) {
    const std::shared_ptr<ProcessGroup> group = Group();
    const torch::Tensor tensor = torch::ones({numel});
    for (;;) {
      MR_RETURN_IF_ERROR(group->AllReduce(tensor, ReduceOp::kMean));
      Step();
    }
  }

  // Trains, likewise.
  absl::Status Train() {
    torch::nn::Sequential net(torch::nn::Linear(256, 512), torch::nn::Tanh(),
                              torch::nn::Linear(512, 1));
    MR_ASSIGN_OR_RETURN(const auto ddp,
                        DistributedModule::Create(Group(), *net));
    try {
      for (;;) {
        net->forward(torch::randn({8, 256})).sum().backward();
        Step();
      }
    } catch (const CollectiveError& error) {
      return error.status();
    }
  }

  // Beside the others.
  void Abort(const std::string& why) {
    Group()->Abort(absl::AbortedError(why));
  }
  int64_t Steps() const {
    absl::MutexLock lock(&mu_);
    return steps_;
  }
  // See ProcessGroup::waits.
  int Waits() const { return Group()->waits(); }

 private:
  std::shared_ptr<ProcessGroup> Group() const {
    absl::MutexLock lock(&mu_);
    return group_;
  }
  void Step() {
    absl::MutexLock lock(&mu_);
    ++steps_;
  }

  const int rank_;
  mutable absl::Mutex mu_;
  std::shared_ptr<ProcessGroup> group_ ABSL_GUARDED_BY(mu_);
  int64_t steps_ ABSL_GUARDED_BY(mu_) = 0;
};

MINIRAY_ACTOR(RankWorker, Constructor<int>, &RankWorker::Pid,
              &RankWorker::Start, &RankWorker::Address, &RankWorker::Sum,
              &RankWorker::Barrier, &RankWorker::Reduce, &RankWorker::Train,
              &RankWorker::Abort, &RankWorker::Steps, &RankWorker::Waits);

}  // namespace miniray::train

#endif  // MINIRAY_TESTS_TRAIN_COLLECTIVE_RANK_WORKER_H_
