#include "ml/gan/total_progress.h"

#include "train/metrics.h"

namespace miniray::ml {

TotalProgress AddUp(absl::Span<const train::Progress> workers, int epoch) {
  TotalProgress total;
  int with_losses = 0;
  for (const train::Progress& worker : workers) {
    if (worker.epoch != epoch || worker.samples < 1) continue;
    total.fraction += static_cast<double>(worker.samples_done) /
                      static_cast<double>(worker.samples);
    total.images_per_sec += worker.samples_per_second();
    const auto g_loss = worker.metrics.find("g_loss");
    const auto d_loss = worker.metrics.find("d_loss");
    if (g_loss == worker.metrics.end() || d_loss == worker.metrics.end()) {
      continue;
    }
    ++with_losses;
    total.g_loss += g_loss->second;
    total.d_loss += d_loss->second;
  }
  if (!workers.empty()) total.fraction /= static_cast<double>(workers.size());
  if (with_losses > 0) {
    total.g_loss /= with_losses;
    total.d_loss /= with_losses;
  }
  return total;
}

}  // namespace miniray::ml
