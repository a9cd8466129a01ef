#include "tests/ml/metrics/metrics_testutil.h"

#include <sstream>

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

}  // namespace miniray::ml
