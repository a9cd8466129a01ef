// DistributedModule: keeps the copies of a module that several ranks train
// equal, by averaging their gradients as the backward pass computes them. What
// torch.nn.parallel.DistributedDataParallel is in Python.
//
//   auto ddp = DistributedModule::Create(group, *model);   // in all ranks
//   torch::optim::SGD optimizer(model->parameters(), 0.1);
//   for (...) {
//     optimizer.zero_grad();
//     torch::mse_loss(model->forward(x), y).backward();
//     optimizer.step();  // Gradients are the mean over the ranks.
//   }
//
// The module is used as before: its own forward is called, which in C++ has any
// signature and cannot be wrapped. All the work hangs on the parameters: when
// the gradient of one is accumulated, it is copied into its bucket; a bucket
// that is full is all-reduced while the backward pass goes on; at the end of
// the pass it waits for all of them. So
//
// - the gradients that optimizer.step() sees are the mean over the ranks. With
//   losses that are means over batches of the same size, they are the gradient
//   of the mean over all the samples of all ranks.
// - every backward pass that reaches at least one parameter is one reduction,
//   whatever lies before it: two forwards and one backward, two backwards. What
//   earlier passes have accumulated stays: the mean of sums is the sum of
//   means.
// - errors are thrown out of backward(), as CollectiveError.
// - all ranks must make the same backward passes. Several modules (a GAN's G
//   and D) may use one group, and one pass may reach several of them, in the
//   same order in all ranks; parameters that a pass must not touch have
//   requires_grad off while the graph is built, or their input is detached.
//
// Needs LibTorch's front end where it is used, not here.

#ifndef MINIRAY_TRAIN_COLLECTIVE_DISTRIBUTED_MODULE_H_
#define MINIRAY_TRAIN_COLLECTIVE_DISTRIBUTED_MODULE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/collective/process_group.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace miniray::train {

// How gradients travel. They are summed in float32 (float64 gradients are
// rounded to it), and each rank gets the same bits. Half the bytes of float32.
enum class GradientCompression {
  kNone,      // In their own type; bfloat16 and float16 as float32.
  kFloat16,   // Rounded to float16, twice: before the sum and after it. Beyond
              // 65,504 a gradient becomes infinite.
  kBfloat16,  // Rounded to bfloat16, twice: float32's range, 8 bits' precision.
};

struct DistributedOptions {
  // Gradients travel in buckets, those of the last parameters first. The first
  // one is small, so that the exchange begins early; a parameter is never cut.
  int64_t first_bucket_bytes = int64_t{1} << 20;
  int64_t bucket_bytes = int64_t{25} << 20;

  // False: a backward pass that leaves out a parameter which requires a
  // gradient is an error that names it, in the rank where it happens. True: it
  // counts as zero in that rank, and a parameter that all ranks left out keeps
  // its gradient as it was. Costs one small exchange a pass.
  bool allow_unused_parameters = false;

  // Buffers (BatchNorm's running statistics) are set to rank 0's at the end of
  // every so many reduced backward passes, so that all ranks begin the next
  // forward with the same; 0: never, each rank keeps its own. What a forward in
  // training mode normalises with is its own rank's batch, in any case.
  int broadcast_buffers_every = 1;

  GradientCompression compression = GradientCompression::kNone;
};

// For use by one thread, that of the training, while others may call the
// group's Abort. REQUIRES: no backward pass is under way when it is destroyed.
class DistributedModule {
 public:
  // Checks that all ranks' modules have the same parameters and buffers, gives
  // all of them rank 0's values, and begins to reduce gradients. A collective
  // call; all ranks get an error if any does. Parameters must stay those that
  // they are: no to(dtype), no register_parameter, and no torch::load
  // afterwards, though LoadTraining may be; see CheckHooks.
  //
  // group: started. module: on the CPU or a GPU, dense parameters.
  //
  // Errors: INVALID_ARGUMENT, of the options, or a rank's module differs from
  // rank 0's (which rank, which parameter or buffer, and how). Those of
  // ProcessGroup's collectives.
  static absl::StatusOr<std::unique_ptr<DistributedModule>> Create(
      std::shared_ptr<ProcessGroup> group, torch::nn::Module& module,
      DistributedOptions options = {});

  // The module's gradients are its rank's own again from here on.
  ~DistributedModule();
  DistributedModule(const DistributedModule&) = delete;
  DistributedModule& operator=(const DistributedModule&) = delete;

  // While one lives, backward passes reduce nothing: gradients accumulate in
  // each rank, and the first pass after it averages the sums.
  //
  //   { DistributedModule::NoSync no_sync(*ddp);
  //     for (int i = 0; i < 3; ++i) Loss(batch[i]).backward(); }
  //   Loss(batch[3]).backward();   // and then the optimizer's step
  //
  // Scopes may be nested. No buffers are broadcast either.
  class NoSync {
   public:
    explicit NoSync(DistributedModule& module);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedModule& module_;
  };

  // Takes the part of a rank that has no batch left in a backward pass of the
  // others: its gradients count as zero, and become the mean over all ranks, so
  // that the optimizer's step keeps it equal to them. Buffers too. For
  // ForEachJoined (train/data/join.h); with it, the gradient of a step in which
  // only some ranks have a batch is smaller, as with PyTorch's Join. Where it
  // is used, a pass must reach one module only: of several, the others'
  // collectives are interleaved, and those here are not.
  //
  // Errors: those of the collectives.
  absl::Status ShadowBackward();

  // Sets all buffers to rank 0's now, in all ranks, whatever
  // broadcast_buffers_every says. A collective call. Errors: of Broadcast.
  absl::Status BroadcastBuffers();

  // Whether gradients still come here. torch::load into the module and to()
  // take the hooks off its parameters without a word, and each rank would go on
  // by itself from then on. Cheap: some nanoseconds a parameter. Errors:
  // FAILED_PRECONDITION, with the first parameter.
  absl::Status CheckHooks() const;

  // What happened so far, in this rank.
  struct Stats {
    int64_t num_reductions = 0;  // Backward passes that were reduced.
    int num_buckets = 0;         // Of one pass.
    int64_t bytes_per_pass = 0;  // Of all buckets, as they travel.
    absl::Duration waited;  // At the ends of passes, for buckets under way.
  };
  Stats stats() const;

 private:
  struct State;
  explicit DistributedModule(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_COLLECTIVE_DISTRIBUTED_MODULE_H_
