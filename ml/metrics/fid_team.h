// Who computes the statistics that a distance is made of: this process, or
// workers on a cluster.

#ifndef MINIRAY_ML_METRICS_FID_TEAM_H_
#define MINIRAY_ML_METRICS_FID_TEAM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ml/cli/progress_bar.h"
#include "ml/gan/piece_dealer.h"
#include "ml/metrics/feature_statistics.h"
#include "runtime/api/miniray.h"

namespace miniray::ml {

// Shows how many images are done. Not thread-safe.
class FidProgress {
 public:
  // what: "real images".
  FidProgress(ProgressBar* bar, std::string what);

  // fraction: of all of them. images: so many.
  void Show(double fraction, int64_t images);

  double seconds() const;  // Since it was made.

 private:
  ProgressBar& bar_;
  const std::string what_;
  const absl::Time start_;
};

// Not thread-safe.
class FidTeam {
 public:
  virtual ~FidTeam() = default;

  // What the real images depend on; see DataIdentity.
  virtual absl::StatusOr<std::string> Identity() = 0;
  // Of all real images.
  virtual absl::StatusOr<FeatureStatistics> Real(FidProgress* progress) = 0;
  // Of images [0, count) of the sequence that `seed` names; see ImageGenerator.
  virtual absl::StatusOr<FeatureStatistics> Generated(
      uint64_t seed, int64_t count, FidProgress* progress) = 0;

 protected:
  FidTeam() = default;
};

// Merges statistics in the order of their pieces, so that rounding does not
// depend on who is done first.
class OrderedMerge {
 public:
  // index: of the pieces, from 0, each once.
  absl::Status Add(int64_t index, FeatureStatistics statistics);

  const FeatureStatistics& merged() const { return merged_; }

 private:
  FeatureStatistics merged_;
  int64_t next_ = 0;
  std::map<int64_t, FeatureStatistics> early_;
};

// Begins to compute a piece.
using FidCall =
    std::function<ObjectRef<FeatureStatistics>(int worker, const Piece& piece)>;

// How far workers may be ahead of the piece that is to be merged next: so many
// pieces for each.
inline constexpr int64_t kFidWindowPerWorker = 2;

// Has workers compute the dealer's pieces, and merges them. The work of a
// worker that dies goes to the others.
// Errors: those of DealOut.
absl::StatusOr<FeatureStatistics> GatherStatistics(PieceDealer* dealer,
                                                   FidProgress* progress,
                                                   const FidCall& call);

// The same of images [0, count) in pieces.
absl::StatusOr<FeatureStatistics> GatherGenerated(int64_t count, int workers,
                                                  FidProgress* progress,
                                                  const FidCall& call);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_METRICS_FID_TEAM_H_
