#include "tests/ml/gan/gan_testutil.h"

#include "ATen/ops/empty.h"
#include "ATen/ops/equal.h"
#include "ml/data/mix64.h"

namespace miniray::ml {

GanOptions SmallGanOptions(uint64_t seed) {
  return {.shape = kSmallShape,
          .latent_dim = 16,
          .weights_seed = seed,
          .noise_seed = seed + 1000};
}

std::unique_ptr<Gan> MakeGan(const GanOptions& options) {
  std::unique_ptr<Gan> gan = *Gan::Create(options);
  gan->BeginEpoch(0);
  return gan;
}

at::Tensor SmallImages(int64_t count, uint64_t seed) {
  at::Tensor images = at::empty({count, 1, 8, 8});
  float* out = images.data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t place = Mix64(seed + static_cast<uint64_t>(i)) % 4;
    for (uint64_t y = 0; y < 8; ++y) {
      for (uint64_t x = 0; x < 8; ++x) {
        const bool bright = y / 4 == place / 2 && x / 4 == place % 2;
        *out++ = bright ? 0.8f : -0.8f;
      }
    }
  }
  return images;
}

at::Tensor SmallLabels(int64_t count, uint64_t seed) {
  at::Tensor labels = at::empty({count}, at::kLong);
  int64_t* out = labels.data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    *out++ = static_cast<int64_t>(Mix64(seed + static_cast<uint64_t>(i)) % 4);
  }
  return labels;
}

NamedTensors Copy(const NamedTensors& tensors) {
  NamedTensors copy;
  for (const auto& [name, tensor] : tensors) {
    copy.emplace_back(name, tensor.clone());
  }
  return copy;
}

bool Equal(const NamedTensors& a, const NamedTensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].first != b[i].first || !a[i].second.equal(b[i].second)) {
      return false;
    }
  }
  return true;
}

GanModel SmallGenerator(uint64_t seed) {
  return SmallGenerator(SmallGanOptions(seed));
}

GanModel SmallGenerator(const GanOptions& options) {
  std::unique_ptr<Gan> gan = *Gan::Create(options);
  return {.network = GanNetwork::kGenerator,
          .latent_dim = options.latent_dim,
          .shape = options.shape,
          .architecture = options.architecture,
          .classes = options.classes,
          .weights = gan->NetworkWeights(GanNetwork::kGenerator)};
}

}  // namespace miniray::ml
