#include "ml/models/linear.h"

#include <cmath>

namespace miniray::ml {

torch::nn::Linear MakeLinear(int64_t inputs, int64_t outputs,
                             at::Generator& random) {
  torch::nn::Linear linear(inputs, outputs);
  const torch::NoGradGuard no_grad;
  const double bound = 1.0 / std::sqrt(static_cast<double>(inputs));
  linear->weight.uniform_(-bound, bound, random);
  linear->bias.uniform_(-bound, bound, random);
  return linear;
}

}  // namespace miniray::ml
