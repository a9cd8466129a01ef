#include "ml/gan/fid_curve.h"

#include <exception>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ml/data/exception_text.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {

absl::Status FidCurve::Start(const ImageShape& shape, FidTeam* team,
                             ProgressBar* bar) {
  MR_ASSIGN_OR_RETURN(
      evaluation_,
      FidEvaluation::Create(options_.extractor, shape, options_.cache_dir));
  bar->Print(absl::StrCat(
      kFidMetric, ": ", name(), " of ", options_.count, " images, every ",
      options_.every == 1 ? "epoch" : absl::StrCat(options_.every, " epochs"),
      "; not comparable with numbers by another file"));
  return evaluation_->LoadReal(team, bar);
}

void FidCurve::Measure(int epoch, FidTeam* team, ProgressBar* bar,
                       train::Metrics* metrics) {
  const absl::Time start = absl::Now();
  const absl::StatusOr<FidResult> result = Compare(team, bar);
  (*metrics)[kFidSecondsMetric] = absl::ToDoubleSeconds(absl::Now() - start);
  if (!result.ok()) {
    bar->Print(
        absl::StrCat("Warning: no ", kFidMetric, " after epoch ", epoch + 1,
                     " (training goes on): ", result.status().message()));
    return;
  }
  const std::string warning = FewImagesWarning(*result);
  if (!warning.empty() && !std::exchange(warned_, true)) bar->Print(warning);
  (*metrics)[kFidMetric] = result->distance;
}

absl::StatusOr<FidResult> FidCurve::Compare(FidTeam* team,
                                            ProgressBar* bar) const {
  try {
    return evaluation_->Compare(team, options_.seed, options_.count, bar);
  } catch (const std::exception& error) {
    return absl::InternalError(FirstLine(error));
  }
}

}  // namespace miniray::ml
