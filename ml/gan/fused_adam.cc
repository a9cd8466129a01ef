#include "ml/gan/fused_adam.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "ATen/Parallel.h"
#include "ATen/ops/zeros_like.h"
#include "c10/core/GradMode.h"
#include "train/libtorch_compat.h"

namespace miniray::ml {
namespace {

// Fewer values than this are not worth a second thread.
constexpr int64_t kGrain = int64_t{1} << 15;

// float, so that eight fit a register.
struct Coefficients {
  float beta1;
  float beta2;
  float step_size;        // lr / (1 - beta1^t)
  float denominator_inv;  // 1 / sqrt(1 - beta2^t)
  float epsilon;
};

[[gnu::always_inline]] inline void Update(const Coefficients& c,
                                          const float* __restrict gradient,
                                          float* __restrict parameter,
                                          float* __restrict moment1,
                                          float* __restrict moment2,
                                          int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i];
    const float m = c.beta1 * moment1[i] + (1.0f - c.beta1) * g;
    const float v = c.beta2 * moment2[i] + (1.0f - c.beta2) * g * g;
    moment1[i] = m;
    moment2[i] = v;
    parameter[i] -=
        c.step_size * m / (std::sqrt(v) * c.denominator_inv + c.epsilon);
  }
}

using UpdateFunction = void (*)(const Coefficients&, const float*, float*,
                                float*, float*, int64_t);

void UpdatePortable(const Coefficients& c, const float* gradient,
                    float* parameter, float* moment1, float* moment2,
                    int64_t count) {
  Update(c, gradient, parameter, moment1, moment2, count);
}

#ifdef __x86_64__
[[gnu::target("avx2,fma")]] void UpdateAvx2(const Coefficients& c,
                                            const float* gradient,
                                            float* parameter, float* moment1,
                                            float* moment2, int64_t count) {
  Update(c, gradient, parameter, moment1, moment2, count);
}
#endif

UpdateFunction ChooseUpdate() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return &UpdateAvx2;
  }
#endif
  return &UpdatePortable;
}

}  // namespace

FusedAdam::FusedAdam(std::vector<at::Tensor> parameters,
                     const torch::optim::AdamOptions& options)
    : Adam(std::move(parameters), options) {
  TORCH_CHECK(options.weight_decay() == 0 && !options.amsgrad(),
              "FusedAdam has no weight decay and no AMSGrad");
  for (const at::Tensor& parameter : param_groups()[0].params()) {
    TORCH_CHECK(parameter.scalar_type() == at::kFloat &&
                    parameter.is_contiguous() && parameter.is_cpu(),
                "FusedAdam needs contiguous float32 parameters on the CPU");
  }
}

at::Tensor FusedAdam::step(LossClosure closure) {
  static const UpdateFunction update = ChooseUpdate();
  at::Tensor loss;
  if (closure != nullptr) {
    const c10::AutoGradMode with_gradients(true);
    loss = closure();
  }
  for (torch::optim::OptimizerParamGroup& group : param_groups()) {
    const auto& options =
        static_cast<const torch::optim::AdamOptions&>(group.options());
    const auto [beta1, beta2] = options.betas();
    for (at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      const at::Tensor gradient = parameter.grad().contiguous();
      torch::optim::AdamParamState& state = AdamStateOf(*this, parameter);
      state.step(state.step() + 1);
      const double t = static_cast<double>(state.step());
      const Coefficients c = {
          .beta1 = static_cast<float>(beta1),
          .beta2 = static_cast<float>(beta2),
          .step_size =
              static_cast<float>(options.lr() / (1.0 - std::pow(beta1, t))),
          .denominator_inv =
              static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, t))),
          .epsilon = static_cast<float>(options.eps())};
      const float* const g = gradient.data_ptr<float>();
      float* const p = parameter.data_ptr<float>();
      float* const m = state.exp_avg().data_ptr<float>();
      float* const v = state.exp_avg_sq().data_ptr<float>();
      at::parallel_for(
          0, gradient.numel(), kGrain, [&](int64_t begin, int64_t end) {
            update(c, g + begin, p + begin, m + begin, v + begin, end - begin);
          });
      parameter.mutable_grad() = at::Tensor();
    }
  }
  return loss;
}

torch::optim::AdamParamState& AdamStateOf(torch::optim::Adam& adam,
                                          const at::Tensor& parameter) {
  std::unique_ptr<torch::optim::OptimizerParamState>& state =
      adam.state()[train::compat::OptimizerStateKey(parameter)];
  if (state == nullptr) {
    auto made = std::make_unique<torch::optim::AdamParamState>();
    made->exp_avg(at::zeros_like(parameter.detach()));
    made->exp_avg_sq(at::zeros_like(parameter.detach()));
    state = std::move(made);
  }
  return static_cast<torch::optim::AdamParamState&>(*state);
}

}  // namespace miniray::ml
