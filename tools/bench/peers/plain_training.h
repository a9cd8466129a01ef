// What data-parallel training is measured against: processes that train with a
// plain loop of LibTorch's, each by itself.

#ifndef MINIRAY_TOOLS_BENCH_PEERS_PLAIN_TRAINING_H_
#define MINIRAY_TOOLS_BENCH_PEERS_PLAIN_TRAINING_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/bench/child.h"

namespace miniray::bench {

// The role of a process, and what it runs.
inline constexpr char kPlainTrainingRole[] = "plain-training";
int ServePlainTraining();

// Not thread-safe.
class PlainTraining {
 public:
  // Starts processes of one compute thread each, with the settings of memory
  // that actors have; process i trains a TrainingTask of shard i, whose
  // parameters lie in shared memory like those of workers. Each has trained
  // one epoch then.
  static absl::StatusOr<std::unique_ptr<PlainTraining>> Start(
      int processes, int64_t samples, int64_t batch_size);

  // All train at once. Returns samples a second: the sum of what each process
  // reaches, as its own clock has it.
  absl::StatusOr<double> Train(int epochs);

  // The same, but that each epoch begins once all have ended the one before, as
  // with any training that brings its workers together then. Samples of all by
  // the time of all.
  absl::StatusOr<double> TrainInStep(int epochs);

  // The mean loss of the last epoch of process 0.
  absl::StatusOr<double> LastLoss() {
    return processes_.front()->AskNumber("loss");
  }

 private:
  PlainTraining(std::vector<std::unique_ptr<Child>> processes,
                int64_t epoch_samples)
      : processes_(std::move(processes)), epoch_samples_(epoch_samples) {}

  const std::vector<std::unique_ptr<Child>> processes_;
  const int64_t epoch_samples_;  // Of all.
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_PEERS_PLAIN_TRAINING_H_
