// The training that `train` measures, alike in plain processes and in workers:
// a small convolutional network on images of CIFAR-10's shape.
//
// Needs LibTorch's front end, which is slow to compile: include it in sources,
// not in headers.

#ifndef MINIRAY_TOOLS_BENCH_TRAINING_TASK_H_
#define MINIRAY_TOOLS_BENCH_TRAINING_TASK_H_

#include <cstdint>

#include "torch/nn/module.h"
#include "torch/nn/modules/conv.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/sgd.h"

namespace miniray::bench {

// Two convolutions and two linear layers, 136,000 parameters.
struct SmallNetwork : torch::nn::Module {
  SmallNetwork();
  // images: float32 [B, 3, 32, 32]. Returns logits, [B, 10].
  at::Tensor Forward(const at::Tensor& images);

  torch::nn::Conv2d first = nullptr;
  torch::nn::Conv2d second = nullptr;
  torch::nn::Linear hidden = nullptr;
  torch::nn::Linear output = nullptr;
};

// Every copy begins with the same weights; images and labels are drawn from the
// shard's number, and every epoch has the same batches in the same order.
struct TrainingTask {
  // samples: in an epoch; a last batch that would be smaller is left out.
  TrainingTask(int shard, int64_t samples, int64_t batch_size);

  int64_t num_batches() const { return images.size(0) / batch_size; }
  // The mean cross-entropy of a batch.
  at::Tensor Loss(int64_t batch);

  const int64_t batch_size;
  const at::Tensor images;  // float32 [N, 3, 32, 32]
  const at::Tensor labels;  // int64 [N]
  SmallNetwork network;
  torch::optim::SGD optimizer;  // With momentum.
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_TRAINING_TASK_H_
