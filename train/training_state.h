// What a worker gives for a checkpoint: the bytes of models, optimizers and
// generators of random numbers.
//
//   absl::StatusOr<train::CheckpointFiles> MyWorker::SaveCheckpoint() {
//     return train::SaveTraining(
//         {.models = {{"model", &*model_}}, .optimizers = {{"adam", &adam_}}},
//         {{"next_sample", next_sample_}});
//   }
//   absl::Status MyWorker::LoadCheckpoint(const train::CheckpointFiles& files)
//   {
//     MR_ASSIGN_OR_RETURN(train::Config extras,
//                         train::LoadTraining(files, {.models = ..., ...}));
//     MR_ASSIGN_OR_RETURN(next_sample_, extras.GetInt("next_sample", 0));
//     return absl::OkStatus();
//   }
//
// Needs LibTorch's front end, which is slow to compile: include it in the
// sources of workers, not in headers.

#ifndef MINIRAY_TRAIN_TRAINING_STATE_H_
#define MINIRAY_TRAIN_TRAINING_STATE_H_

#include <map>
#include <string>

#include "ATen/core/Generator.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/option_map.h"
#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"
#include "train/checkpoint.h"

namespace miniray::train {

// What is saved and loaded, by names of letters, digits, '_' and '-', alike
// both times. Nothing is owned.
struct TrainingParts {
  std::map<std::string, torch::nn::Module*> models;
  // Also what schedules have made of their learning rates.
  std::map<std::string, torch::optim::Optimizer*> optimizers;
  // Besides LibTorch's default one of the CPU, which torch::manual_seed sets
  // and torch::randn asks, and those of the CUDA devices that models and
  // optimizers are on: these are always there.
  std::map<std::string, at::Generator> generators;
};

// Returns the files
//
//   MODEL.pt     of each model: what torch::save(module) makes; torch::load
//                opens it in C++, torch.jit.load in Python, to both of which a
//                machine without the device must say where to
//   training.pt  optimizers and generators
//   extras       what else the worker needs, its place in the data say
//
// Errors: INVALID_ARGUMENT, a name that cannot be. INTERNAL, what LibTorch
// says.
absl::StatusOr<CheckpointFiles> SaveTraining(const TrainingParts& parts,
                                             const ps::OptionMap& extras = {});

// Brings the parts back to what they were, and returns the extras. Parameters
// and buffers keep their memory, and what hangs on their gradients; the parts
// may be on another device than they were. A model
// must have the parameters that it had, an optimizer its parameters in the same
// order. After an error the parts may be half of the one and half of the other.
//
// Errors: INVALID_ARGUMENT, a file lacks, or does not fit; with its name.
absl::StatusOr<ps::OptionMap> LoadTraining(const CheckpointFiles& files,
                                           const TrainingParts& parts);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_TRAINING_STATE_H_
