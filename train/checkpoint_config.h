// When checkpoints are taken, which are kept, and what Train begins from.

#ifndef MINIRAY_TRAIN_CHECKPOINT_CONFIG_H_
#define MINIRAY_TRAIN_CHECKPOINT_CONFIG_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "train/metrics.h"

namespace miniray::train {

enum class ScoreOrder {
  kMin,  // The least is the best: a loss.
  kMax,  // The greatest is: an accuracy.
};

struct CheckpointConfig {
  // Epochs from one checkpoint to the next; 0: none on the way.
  int frequency = 0;
  // One of the end, whatever the frequency.
  bool at_end = false;
  // SIGTERM and Ctrl-C end training after the epoch that runs, with a
  // checkpoint; the second of them ends the process. Only where checkpoints are
  // taken at all, and only signals that nobody else in the program catches.
  bool on_signal = true;

  // How many stay; 0: all. The newest ones, or the best by score_metric, and
  // then the last one besides. Those that Result names always stay.
  int num_to_keep = 0;
  // A metric of EpochResult::metrics; empty: there is no best checkpoint. One
  // whose epoch lacks it, or has NaN, is the worst.
  std::string score_metric;
  ScoreOrder score_order = ScoreOrder::kMin;

  // "never": a new training. "auto": goes on from the last good checkpoint in
  // the run's folder, where there is one. Else the path of a checkpoint, of
  // this run or of another.
  std::string resume = "never";

  // Whether any is taken.
  bool enabled() const { return frequency > 0 || at_end; }
};

// INVALID_ARGUMENT with the field and what it may be.
absl::Status Validate(const CheckpointConfig& config);

// The score of an epoch with these metrics: greater is better. Minus infinity
// without the metric.
double ScoreOf(const CheckpointConfig& config, const Metrics& metrics);

// What to warn of where a checkpoint is taken and `metrics` lack score_metric;
// empty: they have it, or none is asked for. whose: "reports of rank 0".
std::string MissingScoreWarning(const CheckpointConfig& config,
                                const Metrics& metrics,
                                absl::string_view whose);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_CHECKPOINT_CONFIG_H_
