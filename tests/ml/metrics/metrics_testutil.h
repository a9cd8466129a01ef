// Helpers for tests of distances.

#ifndef MINIRAY_TESTS_ML_METRICS_METRICS_TESTUTIL_H_
#define MINIRAY_TESTS_ML_METRICS_METRICS_TESTUTIL_H_

#include <cstdint>
#include <string>

#include "ml/metrics/feature_extractor.h"

namespace miniray::ml {

// Returns a TorchScript extractor of images of `size` pixels a side, whose
// method is this source: "def forward(self, x): ...".
ExtractorFile MakeScript(const std::string& source, int64_t size,
                         const std::string& range = "0..255");

// The mean of all pixels of the first channel: [N, 1].
inline constexpr char kMeanPixel[] =
    "def forward(self, x):\n  return x[:, 0].mean([1, 2]).unsqueeze(1)\n";

}  // namespace miniray::ml

#endif  // MINIRAY_TESTS_ML_METRICS_METRICS_TESTUTIL_H_
