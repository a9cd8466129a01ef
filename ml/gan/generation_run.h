// One run of the `generate` program: images from a trained generator as files.

#ifndef MINIRAY_ML_GAN_GENERATION_RUN_H_
#define MINIRAY_ML_GAN_GENERATION_RUN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "ml/cli/progress_bar.h"
#include "ml/gan/model_file.h"
#include "runtime/api/miniray.h"

namespace miniray::ml {

struct GenerationRunOptions {
  int64_t num_images = 10;
  std::string output;  // Folder; made if need be.
  uint64_t seed = 0;
  // Of all images, for a model with classes; see ImageGenerator::Create.
  std::optional<int64_t> label;
  int64_t batch_size = 64;  // Images that are made, and dealt out, at a time.
  int columns = 8;          // Of the grid, which shows the first columns^2.

  // On a cluster, by this many workers; else in this process.
  std::optional<Cluster> cluster;
  int workers = 4;
  double cpus_per_worker = 1;
  absl::Duration start_timeout = absl::Seconds(60);
};

// Writes output/image_000.png and so on (more digits if need be) and
// output/grid.png, and prints where. An image depends on the model, the seed
// and its number only, not on the other options.
//
// Workers get the next batch when they are done with one, so slow ones do less;
// the work of one that dies goes to the others. There are never more than two
// batches a worker in memory, here and there.
//
// Errors: those of the folder and of writing; Unavailable when no worker is
// left. Images written before an error stay, and it says how many there are.
absl::Status RunGeneration(const GanModel& model,
                           const GenerationRunOptions& options,
                           ProgressBar* bar);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_GENERATION_RUN_H_
