// Models and optimizers in the checkpoints of a train function.
//
//   int start = ctx.RestoreFrom(model, optimizer);
//   for (int epoch = start; epoch < epochs; ++epoch) {
//     ...
//     ctx.Report({{"loss", loss}}, ctx.Checkpoint(model, optimizer, epoch));
//   }
//
// Several of them, and values besides:
//
//   const train::TrainingParts parts = {
//       .models = {{"generator", &*g}, {"discriminator", &*d}},
//       .optimizers = {{"g", &g_adam}, {"d", &d_adam}}};
//   const train::RestoredState state = train::RestoreParts(ctx, parts);
//   ...
//   ctx.Report(metrics, train::SaveParts(ctx, parts, epoch,
//                                        {.extras = {{"seen", seen}}}));
//
// What is in the files: train/training_state.h. LibTorch's random numbers (of
// the CPU) are always among it. Needs LibTorch's front end, which is slow to
// compile: include it where the function is.

#ifndef MINIRAY_TRAIN_FUNCTIONS_MODEL_STATE_H_
#define MINIRAY_TRAIN_FUNCTIONS_MODEL_STATE_H_

#include <type_traits>

#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"
#include "train/functions/context.h"
#include "train/training_state.h"

namespace miniray::train {

struct SaveOptions {
  // All ranks have the same models and optimizers, because their gradients or
  // weights are kept together: rank 0 gives them, and the others their random
  // numbers alone. Buffers too: where they are not always rank 0's
  // (DistributedOptions::broadcast_buffers_every), the others' are not kept.
  bool replicated = false;
  // Whether one is due or not: for the last epoch. On all ranks alike.
  bool always = false;
  Config extras;  // This rank's, if it gives anything.
};

// Returns this rank's part of a checkpoint, for Report; nothing, and does
// nothing, if none is due (Context::checkpoint_is_due), unless options.always.
//
// epoch: that has just been trained, from 0.
// Throws: std::runtime_error, see SaveTraining.
CheckpointFiles SaveParts(const Context& context, const TrainingParts& parts,
                          int epoch, const SaveOptions& options = {});

struct RestoredState {
  int next_epoch = 0;  // That is to be trained; 0 if there is no checkpoint.
  Config extras;       // Empty if there is none.
};

// Brings the parts back to what they were in the checkpoint that this rank goes
// on from, and tells the epoch behind it. Without a checkpoint it leaves them
// alone.
//
// Throws: std::runtime_error, the checkpoint does not fit, or SaveParts has not
// made it; with the file.
RestoredState RestoreParts(const Context& context, const TrainingParts& parts);

namespace internal {

// Of a module, of what holds one (ModuleHolder), and of a pointer to one.
template <class Model>
torch::nn::Module* ModuleOf(Model& model) {
  if constexpr (std::is_base_of_v<torch::nn::Module, Model>) {
    return &model;
  } else {
    return &*model;
  }
}

// Whether all ranks have the same model: a PreparedModel says so.
template <class Model>
concept Replicated = std::remove_cvref_t<Model>::kReplicated;

}  // namespace internal

// SaveParts of one model and one optimizer. model: a module, what
// TORCH_MODULE makes of it, a pointer to one, or a PreparedModel; of the latter
// rank 0 gives model and optimizer for all. always: see SaveOptions.
template <class Model, class Optimizer>
CheckpointFiles Context::Checkpoint(Model& model, Optimizer& optimizer,
                                    int epoch, bool always) const {
  return SaveParts(
      *this,
      {.models = {{"model", internal::ModuleOf(model)}},
       .optimizers = {{"optimizer", &optimizer}}},
      epoch, {.replicated = internal::Replicated<Model>, .always = always});
}

// RestoreParts of the same; returns the epoch to begin with.
template <class Model, class Optimizer>
int Context::RestoreFrom(Model& model, Optimizer& optimizer) const {
  return RestoreParts(*this, {.models = {{"model", internal::ModuleOf(model)}},
                              .optimizers = {{"optimizer", &optimizer}}})
      .next_epoch;
}

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_FUNCTIONS_MODEL_STATE_H_
