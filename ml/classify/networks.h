// The networks of image classifiers.
//
//   mlp       output(relu(hidden(x))), with linear layers
//   cnn       two convolutions of 3 x 3 with 32 and 64 channels, each with a
//             relu and a maximum of 2 x 2 behind it; a hidden linear layer
//   resnet20  He et al., Deep Residual Learning for Image Recognition, CVPR
//   2016,
//             section 4.2, n = 3, with option A: where sides are halved, the
//             shortcut takes every second pixel and fills the new channels with
//             zeros; of 32 x 32 colours and 10 classes 269,722 parameters
//
// Needs LibTorch's front end, which is slow to compile: include it in sources,
// not in headers.

#ifndef MINIRAY_ML_CLASSIFY_NETWORKS_H_
#define MINIRAY_ML_CLASSIFY_NETWORKS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "torch/nn/module.h"

namespace miniray::ml {

struct NetworkSize {
  int64_t channels = 1;
  int64_t height = 28;
  int64_t width = 28;
  int64_t classes = 10;
  int64_t hidden = 64;  // Units of the hidden layer; resnet20 has none.
};

class ClassifierNetwork : public torch::nn::Module {
 public:
  // x: float32 [B, C, H, W]. Returns logits, [B, classes].
  at::Tensor Forward(const at::Tensor& x) { return Logits(Features(x)); }

  // What the last layer sees of x, [B, F]: F is `hidden`, of resnet20 64.
  virtual at::Tensor Features(const at::Tensor& x) = 0;

 private:
  // The last layer.
  virtual at::Tensor Logits(const at::Tensor& features) = 0;
};

// The names above.
const std::vector<std::string>& ClassifierNetworkNames();

// Returns a network with first weights drawn from `seed` alone: linear layers
// uniform in +-1/sqrt(inputs), convolutions normal with variance 2 / (outputs *
// kernel) (He et al., Delving Deep into Rectifiers, ICCV 2015, section 2.2,
// backward case).
//
// Errors: INVALID_ARGUMENT, an unknown name (lists the known ones), a size
// below 1, or images that are too small: cnn needs 4 x 4 pixels, resnet20 also.
absl::StatusOr<std::shared_ptr<ClassifierNetwork>> MakeClassifierNetwork(
    const std::string& name, const NetworkSize& size, uint64_t seed);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_CLASSIFY_NETWORKS_H_
