// The training that `train_functions` measures, alike in the ranks of a train
// function and in processes of their own.
//
// Needs LibTorch's front end, which is slow to compile: include it in sources,
// not in headers.

#ifndef MINIRAY_TOOLS_BENCH_RESNET_TRAINING_H_
#define MINIRAY_TOOLS_BENCH_RESNET_TRAINING_H_

#include <cstdint>
#include <vector>

#include "tools/bench/resnet20.h"
#include "torch/optim/sgd.h"

namespace miniray::bench {

// Trains a ResNet-20 on batches that it makes beforehand, again and again. What
// the shard's number says is which images they have.
class ResNetTraining {
 public:
  // network: on the device that it is trained on.
  ResNetTraining(ResNet20 network, int shard, int64_t batch_size);

  // Returns samples a second. steps: 1 or more.
  double Train(int64_t steps);

  int64_t num_parameters() const;
  // The same in ranks that have the same weights.
  double SumOfWeights() const;
  // The last batch's.
  double loss() const { return loss_.item<double>(); }

 private:
  struct Batch {
    at::Tensor images;  // float32 [B, 3, 32, 32]
    at::Tensor labels;  // int64 [B]
  };

  ResNet20 network_;
  const int64_t batch_size_;
  std::vector<Batch> batches_;
  torch::optim::SGD optimizer_;  // With momentum.
  int64_t steps_ = 0;
  at::Tensor loss_;
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_RESNET_TRAINING_H_
