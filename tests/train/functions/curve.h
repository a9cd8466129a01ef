// Train functions whose ranks train one model together, on data that makes the
// outcome independent of their number: step by step all ranks together see the
// samples that one rank with a batch as large as theirs together sees.
//
// They report the parameters, "p0", "p1", ..., and "seen", the samples of this
// rank in that epoch.

#ifndef MINIRAY_TESTS_TRAIN_FUNCTIONS_CURVE_H_
#define MINIRAY_TESTS_TRAIN_FUNCTIONS_CURVE_H_

#include "train/functions/context.h"

namespace miniray::train {

inline constexpr int kCurveSamples = 480;

// A network of 25 parameters learns a curve, by SGD with momentum.
// config:
//   epochs
//   batch_size   on each rank
//   accumulate   batches of a step; 1
//   uneven       whether the ranks' shards are (Tail::kUneven); false
//   fault_file   see fault.h; WHERE is "backward" (in the second backward pass
//     of the epoch), "save" or "barrier"
//   felt         if not empty: the file in which a rank whose backward pass
//     fails notes when, in Unix milliseconds, its name ending with the rank
void FitCurve(Context& ctx);

// A GAN of two models, each prepared, whose noise belongs to the samples.
// config: epochs, batch_size.
void FitGan(Context& ctx);

}  // namespace miniray::train

#endif  // MINIRAY_TESTS_TRAIN_FUNCTIONS_CURVE_H_
