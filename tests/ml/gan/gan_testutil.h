// Helpers for tests of the GAN.

#ifndef MINIRAY_TESTS_ML_GAN_GAN_TESTUTIL_H_
#define MINIRAY_TESTS_ML_GAN_GAN_TESTUTIL_H_

#include <memory>
#include <string>

#include "ml/gan/gan.h"
#include "ml/gan/model_file.h"

namespace miniray::ml {

inline constexpr ImageShape kSmallShape = {1, 8, 8};

// Returns options for images of kSmallShape: small, but with the usual hidden
// layers.
GanOptions SmallGanOptions(uint64_t seed = 1);

// Returns a GAN in its first epoch.
std::unique_ptr<Gan> MakeGan(const GanOptions& options);

// Returns float32 [count, 1, 8, 8] in [-1, 1]: a bright square at one of four
// places on a dark ground, the same for the same arguments.
at::Tensor SmallImages(int64_t count, uint64_t seed);

// Returns their places: int64 [count] in [0, 4).
at::Tensor SmallLabels(int64_t count, uint64_t seed);

// Returns a copy: weights taken from a model change with it.
NamedTensors Copy(const NamedTensors& tensors);

// True if names and values are the same, bit by bit.
bool Equal(const NamedTensors& a, const NamedTensors& b);

// Returns the generator of a new GAN as a model file's contents.
GanModel SmallGenerator(uint64_t seed = 1);
GanModel SmallGenerator(const GanOptions& options);

}  // namespace miniray::ml

#endif  // MINIRAY_TESTS_ML_GAN_GAN_TESTUTIL_H_
