// How far several workers are within an epoch, as one.

#ifndef MINIRAY_ML_GAN_TOTAL_PROGRESS_H_
#define MINIRAY_ML_GAN_TOTAL_PROGRESS_H_

#include "absl/types/span.h"
#include "train/epoch_meter.h"

namespace miniray::ml {

struct TotalProgress {
  double fraction = 0;  // Of the epoch, in [0, 1].
  double images_per_sec = 0;
  double g_loss = 0;  // Means over the workers that have one.
  double d_loss = 0;
};

// Adds up what the workers say (GanWorker::GetProgress) on `epoch`, from 0; one
// that is in an earlier epoch has done nothing yet.
TotalProgress AddUp(absl::Span<const train::Progress> workers, int epoch);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_TOTAL_PROGRESS_H_
