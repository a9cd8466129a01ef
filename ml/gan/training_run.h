// One run of the `train` program: trains, shows how far it is, saves.

#ifndef MINIRAY_ML_GAN_TRAINING_RUN_H_
#define MINIRAY_ML_GAN_TRAINING_RUN_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "ml/cli/progress_bar.h"
#include "ml/gan/fid_curve.h"
#include "ml/gan/gan_worker.h"
#include "train/options.h"

namespace miniray::ml {

struct TrainingRunOptions {
  GanWorkerOptions worker;
  int epochs = 10;
  int threads = 1;  // Compute threads of the process, or of each worker.
  std::string save_dir;
  int sample_every = 0;  // Epochs from one picture to the next; 0: none.
  FidCurveOptions fid;

  // On a cluster: the one of `trainer.cluster`. Else in this process, and
  // `trainer` does not matter.
  bool distributed = false;
  train::TrainerOptions trainer;
};

// Trains and writes to save_dir, which is made if need be:
//   generator.pt, discriminator.pt   the model; of several workers, the average
//   samples.png                      images of that generator
//   worker_0/generator.pt, ...       each worker's own (distributed only)
// Workers may be on other machines; all files are written here. Each is whole
// or not there, and none of these is written before training has ended well.
// A generator is its moving average, where one is kept.
//
// With sample_every, samples/epoch-0005.png and so on, of the generator of
// worker 0, are written while training goes on: to the run folder, or to
// save_dir where there is none. One that cannot be made or written is a
// warning.
//
// With fid.every, the images of the generator that would be saved are compared
// with the real ones every so many epochs and after the last, by the workers,
// which are synchronised first. Epochs have the result in their metrics, "fid",
// and what it is by in their notes.
//
// Prints a line an epoch and, at the end, where the files are.
//
// Distributed, `trainer` may have a run folder and checkpoints.
//
// Errors: those of the folder, before training; of the data, of a worker; of
// the extractor, and of the real images' statistics, before training.
// CANCELLED, a signal has ended training early, with a checkpoint; nothing is
// in save_dir then.
absl::Status RunTraining(const TrainingRunOptions& options, ProgressBar* bar);

// Returns a line for a run that is too short for its ema_decay: the average
// would be, to a twentieth or more, the initial weights. Else empty.
//
// images: of one worker, >= 1.
std::string AverageWarning(const TrainingRunOptions& options, int64_t images);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_TRAINING_RUN_H_
