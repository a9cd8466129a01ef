#include "tests/ml/metrics/metrics_testutil.h"

#include <sstream>

#include "ml/data/synthetic.h"
#include "torch/script.h"

namespace miniray::ml {

ExtractorFile MakeScript(const std::string& source, int64_t size,
                         const std::string& range) {
  torch::jit::Module module("extractor");
  module.define(source);
  std::ostringstream bytes;
  module.save(bytes);
  return {.kind = "torchscript",
          .name = "folder/script.pt",
          .bytes = bytes.str(),
          .size = size,
          .range = range};
}

absl::StatusOr<ImageDataset> MakeTinyDataset(const DatasetOptions& options,
                                             Split split) {
  return MakeSyntheticDataset(
      {.count = 90, .channels = 1, .height = 8, .width = 8}, split,
      options.selection);
}

}  // namespace miniray::ml
