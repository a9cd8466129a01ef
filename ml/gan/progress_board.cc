#include "ml/gan/progress_board.h"

#include <algorithm>

namespace miniray::ml {

std::vector<BatchProgress> ProgressBoard::Latest() const {
  std::vector<BatchProgress> reports;
  for (const auto& [worker_id, progress] : latest_) reports.push_back(progress);
  return reports;
}

TotalProgress AddUp(absl::Span<const BatchProgress> reports, int epoch,
                    int num_workers) {
  TotalProgress total;
  int begun = 0;
  for (const BatchProgress& report : reports) {
    if (report.epoch != epoch || report.batches < 1) continue;
    ++begun;
    total.fraction += static_cast<double>(report.batches_done) /
                      static_cast<double>(report.batches);
    if (report.seconds > 0) {
      total.images_per_sec +=
          static_cast<double>(report.images) / report.seconds;
    }
    total.g_loss += report.g_loss;
    total.d_loss += report.d_loss;
  }
  if (begun == 0) return {};
  total.fraction /= std::max(begun, num_workers);
  total.g_loss /= begun;
  total.d_loss /= begun;
  return total;
}

}  // namespace miniray::ml
