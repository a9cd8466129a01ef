#include "ml/metrics/fid_team.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "ml/gan/deal_out.h"
#include "ml/metrics/extract_statistics.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

// Generated images in a call: enough that what a result costs does not matter,
// few enough that slow workers do not keep others waiting at the end.
constexpr int64_t kPiece = 8 * kFeatureBatch;

}  // namespace

FidProgress::FidProgress(ProgressBar* bar, std::string what)
    : bar_(*bar), what_(std::move(what)), start_(absl::Now()) {}

void FidProgress::Show(double fraction, int64_t images) {
  bar_.Update(
      fraction, what_,
      absl::StrFormat("%d  %.0f/s", images,
                      static_cast<double>(images) / std::max(seconds(), 1e-9)));
}

double FidProgress::seconds() const {
  return absl::ToDoubleSeconds(absl::Now() - start_);
}

absl::Status OrderedMerge::Add(int64_t index, FeatureStatistics statistics) {
  early_.emplace(index, std::move(statistics));
  while (!early_.empty() && early_.begin()->first == next_) {
    MR_RETURN_IF_ERROR(merged_.Merge(early_.begin()->second));
    early_.erase(early_.begin());
    ++next_;
  }
  return absl::OkStatus();
}

absl::StatusOr<FeatureStatistics> GatherStatistics(PieceDealer* dealer,
                                                   FidProgress* progress,
                                                   const FidCall& call) {
  OrderedMerge merge;
  int64_t pieces = 0;
  int64_t images = 0;
  MR_RETURN_IF_ERROR(DealOut<FeatureStatistics>(
      dealer, call,
      [&](const Piece& piece, FeatureStatistics statistics) -> absl::Status {
        images += statistics.count;
        progress->Show(static_cast<double>(++pieces) /
                           static_cast<double>(dealer->num_pieces()),
                       images);
        return merge.Add(piece.index, std::move(statistics));
      }));
  return merge.merged();
}

absl::StatusOr<FeatureStatistics> GatherGenerated(int64_t count, int workers,
                                                  FidProgress* progress,
                                                  const FidCall& call) {
  PieceDealer dealer({.items = count,
                      .piece_size = kPiece,
                      .workers = workers,
                      .window = kFidWindowPerWorker * workers});
  return GatherStatistics(&dealer, progress, call);
}

}  // namespace miniray::ml
