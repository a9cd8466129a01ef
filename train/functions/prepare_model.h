// Context::PrepareModel: a model that all ranks train together.
//
//   auto model = ctx.PrepareModel(ResNet20());
//   torch::optim::SGD optimizer(model->parameters(), 0.1);
//   const int start = ctx.RestoreFrom(model, optimizer);
//   ...
//   torch::mse_loss(model(x), y).backward();   // Gradients: means over ranks.
//   optimizer.step();
//
// Several models (a GAN's) are prepared one after the other, in the same order
// on all ranks. What holds for backward passes stands in
// train/collective/distributed_module.h.
//
// Needs LibTorch's front end, which is slow to compile: include it where the
// function is.

#ifndef MINIRAY_TRAIN_FUNCTIONS_PREPARE_MODEL_H_
#define MINIRAY_TRAIN_FUNCTIONS_PREPARE_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "torch/nn/module.h"
#include "train/collective/collective_error.h"
#include "train/collective/distributed_module.h"
#include "train/collective/process_group.h"
#include "train/data/join.h"
#include "train/functions/context.h"
#include "train/functions/model_state.h"

namespace miniray::train {

namespace internal {

// Moves the module to the device, and lets the ranks keep it alike. Throws
// CollectiveError.
std::unique_ptr<DistributedModule> Distribute(
    std::shared_ptr<ProcessGroup> group, torch::nn::Module& module,
    c10::Device device, const DistributedOptions& options);

// ChooseDevice. Throws std::runtime_error with the text of its errors.
c10::Device DeviceOrThrow(const std::string& name);

std::vector<at::Tensor> GradientsOf(const torch::nn::Module& module);

// DistributedModule's. Throws std::logic_error.
void CheckHooks(const DistributedModule& distributed);

}  // namespace internal

// The module, used as before, through ->, * or (): forward is its own. As long
// as this lives its gradients are averaged. Movable; for one thread, that of
// the training.
//
// ->, * and () throw std::logic_error where they no longer would be: weights
// come in before PrepareModel, or by RestoreFrom, but not by torch::load. See
// DistributedModule::CheckHooks.
template <class Model>
class PreparedModel {
 public:
  using Module = std::remove_reference_t<decltype(*std::declval<Model&>())>;
  static constexpr bool kReplicated = true;  // See Context::Checkpoint.

  PreparedModel(Model model, c10::Device device,
                std::unique_ptr<DistributedModule> distributed)
      : model_(std::move(model)),
        device_(device),
        distributed_(std::move(distributed)) {}

  Module* operator->() const { return &**this; }
  Module& operator*() const {
    internal::CheckHooks(*distributed_);
    return *model_;
  }
  // forward.
  template <class... Args>
  auto operator()(Args&&... args) const {
    return (*this)->forward(std::forward<Args>(args)...);
  }

  // What PrepareModel was given.
  const Model& model() const { return model_; }

  // Where it is: batches go there too, batch.data.to(model.device()).
  c10::Device device() const { return device_; }

  // The gradients that its parameters have now, the module's own tensors: for
  // ClipByNorm, or LossScaler::Unscale.
  std::vector<at::Tensor> Gradients() const {
    return internal::GradientsOf(**this);
  }

  // While the returned object lives, backward passes average nothing:
  // gradients accumulate, and the first pass after it averages the sums. With
  // `when` false it has no effect.
  //
  //   for (int i = 0; i < 4; ++i) {
  //     const auto no_sync = model.NoSync(i < 3);
  //     Loss(batches[i]).backward();
  //   }
  //   optimizer.step();
  [[nodiscard]] std::unique_ptr<DistributedModule::NoSync> NoSync(
      bool when = true) {
    if (!when) return nullptr;
    return std::make_unique<DistributedModule::NoSync>(*distributed_);
  }

  // Takes part in a backward pass of the other ranks without a batch; see
  // DistributedModule. Throws CollectiveError.
  void ShadowBackward() { ThrowUnlessOk(distributed_->ShadowBackward()); }

  // Its statistics, BroadcastBuffers.
  DistributedModule& distributed() { return *distributed_; }

 private:
  static void ThrowUnlessOk(absl::Status status) {
    if (!status.ok()) throw CollectiveError(std::move(status));
  }

  mutable Model model_;  // A handle: const says nothing of the module.
  c10::Device device_;
  // Ends first: it has hooks in the model.
  std::unique_ptr<DistributedModule> distributed_;
};

// One epoch in which ranks may have unequally many batches (Tail::kUneven), so
// that none waits for a backward pass that another never makes:
//
//   train::ForEachJoined(ctx, loader, model,
//                        [&](auto& batch) {  // One backward pass.
//                          optimizer.zero_grad();
//                          Loss(model(batch.data), batch.target).backward();
//                        },
//                        [&] { optimizer.step(); });
//
// backward and then step are called for each batch; a rank that has no batch
// left does ShadowBackward and step until all are done. A collective call.
// loader: a PreparedDataLoader or a BatchStream. Throws CollectiveError, and
// what the loader or the functions throw.
template <class Loader, class Model, class Backward, class Step>
void ForEachJoined(Context& context, Loader& loader,
                   PreparedModel<Model>& model, Backward backward, Step step) {
  ProcessGroup& group = *context.process_group();
  absl::Status status = ForEachJoined(
      loader,
      [&group](int64_t steps) {
        return group.AllReduce(steps, ReduceOp::kMax);
      },
      [&](auto& batch) {
        backward(batch);
        step();
      },
      [&] {
        model.ShadowBackward();
        step();
      });
  if (!status.ok()) throw CollectiveError(std::move(status));
}

// Implementation details follow.

template <class Model>
PreparedModel<Model> Context::PrepareModel(Model model) {
  return PrepareModel(std::move(model), DistributedOptions());
}

template <class Model>
PreparedModel<Model> Context::PrepareModel(Model model,
                                           const DistributedOptions& options) {
  static_assert(!std::is_base_of_v<torch::nn::Module, Model>,
                "PrepareModel takes what TORCH_MODULE makes of a module, or a "
                "std::shared_ptr of it: modules themselves are not copied");
  const std::string stage = Stage();
  SetStage("prepares a model");
  const c10::Device place = internal::DeviceOrThrow(device());
  auto distributed =
      internal::Distribute(process_group(), *model, place, options);
  SetStage(stage);
  return PreparedModel<Model>(std::move(model), place, std::move(distributed));
}

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_FUNCTIONS_PREPARE_MODEL_H_
