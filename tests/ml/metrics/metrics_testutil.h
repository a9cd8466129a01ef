// Helpers for tests of distances.

#ifndef MINIRAY_TESTS_ML_METRICS_METRICS_TESTUTIL_H_
#define MINIRAY_TESTS_ML_METRICS_METRICS_TESTUTIL_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "ml/data/dataset_loader.h"
#include "ml/data/image_dataset.h"
#include "ml/data/split.h"
#include "ml/metrics/feature_extractor.h"

namespace miniray::ml {

// Returns a TorchScript extractor of images of `size` pixels a side, whose
// method is this source: "def forward(self, x): ...".
ExtractorFile MakeScript(const std::string& source, int64_t size,
                         const std::string& range = "0..255");

// The mean of all pixels of the first channel: [N, 1].
inline constexpr char kMeanPixel[] =
    "def forward(self, x):\n  return x[:, 0].mean([1, 2]).unsqueeze(1)\n";

// The means of four quarters of an image of 8 x 8: [N, 4].
inline constexpr char kQuarters[] =
    "def forward(self, x):\n"
    "  return x[:, 0].reshape([-1, 2, 4, 2, 4]).mean([2, 4]).flatten(1)\n";

// Made-up images, 90 of 1 x 8 x 8 in each split, for a DatasetRegistrar: also
// in actor processes, which are the test's program.
absl::StatusOr<ImageDataset> MakeTinyDataset(const DatasetOptions& options,
                                             Split split);

}  // namespace miniray::ml

#endif  // MINIRAY_TESTS_ML_METRICS_METRICS_TESTUTIL_H_
