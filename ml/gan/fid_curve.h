// How far a generator's images are from the real ones, every few epochs of its
// training: a curve in the metrics of the epochs.

#ifndef MINIRAY_ML_GAN_FID_CURVE_H_
#define MINIRAY_ML_GAN_FID_CURVE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "ml/cli/progress_bar.h"
#include "ml/gan/architecture.h"
#include "ml/metrics/feature_extractor.h"
#include "ml/metrics/fid_evaluation.h"
#include "ml/metrics/fid_team.h"
#include "train/metrics.h"

namespace miniray::ml {

// The metrics of an epoch that was evaluated: the distance, which is a FID only
// by Inception's features (FidEvaluation::name says by what it is), and the
// time that it took.
inline constexpr char kFidMetric[] = "fid";
inline constexpr char kFidSecondsMetric[] = "fid_seconds";

struct FidCurveOptions {
  int every = 0;            // Epochs from one evaluation to the next; 0: none.
  ExtractorFile extractor;  // What images are compared by.
  int64_t count = 10000;    // Of generated images, at least 2.
  uint64_t seed = 1;        // The same images' noise each time.
  std::string cache_dir;    // Of the real images' statistics; empty: none.
};

// Not thread-safe.
class FidCurve {
 public:
  explicit FidCurve(FidCurveOptions options) : options_(std::move(options)) {}

  const FidCurveOptions& options() const { return options_; }
  bool enabled() const { return options_.every > 0; }

  // Whether the generator is to be compared after this epoch, from 0: every so
  // many, and the last.
  bool IsDue(int epoch, bool last) const {
    return enabled() && (last || (epoch + 1) % options_.every == 0);
  }

  // Before training: checks the extractor, prints what distances are by, and
  // takes the statistics of the real images.
  //
  // shape: of the images. team: has the extractor.
  // Errors: those of FidEvaluation::Create and LoadReal.
  absl::Status Start(const ImageShape& shape, FidTeam* team, ProgressBar* bar);

  // Compares, and adds kFidMetric and kFidSecondsMetric to an epoch's metrics.
  // What fails is worth a line, and the epoch has no distance: training goes
  // on. REQUIRES: Start was OK.
  void Measure(int epoch, FidTeam* team, ProgressBar* bar,
               train::Metrics* metrics);

  // What distances are by. REQUIRES: Start was OK.
  const std::string& name() const { return evaluation_->name(); }

 private:
  absl::StatusOr<FidResult> Compare(FidTeam* team, ProgressBar* bar) const;

  const FidCurveOptions options_;
  std::optional<FidEvaluation> evaluation_;  // Once started.
  bool warned_ = false;                      // Of too few images.
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_FID_CURVE_H_
