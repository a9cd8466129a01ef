// Gradients that are too large, and what is done about them.
//
// All functions take dense gradients, defined, on one device, and change them
// in place.

#ifndef MINIRAY_TRAIN_GRADIENT_CLIPPING_H_
#define MINIRAY_TRAIN_GRADIENT_CLIPPING_H_

#include <vector>

#include "ATen/core/Tensor.h"

namespace miniray::train {

// True if no element is infinite or NaN.
bool AllFinite(const std::vector<at::Tensor>& gradients);

// The square root of the sum of the squares of all elements, as if they were
// one vector; float32 within a tensor (float64 in one of that). 0 without
// gradients. Not finite if an element is not.
double GradientNorm(const std::vector<at::Tensor>& gradients);

// Multiplies all gradients by `factor`.
void ScaleGradients(const std::vector<at::Tensor>& gradients, double factor);

// Multiplies all by max_norm / (norm + 1e-6) where that is less than 1, and
// returns the norm that they had. A norm that is not finite changes nothing.
//
// max_norm: > 0.
// Source: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent
// neural networks", ICML 2013, algorithm 1; 1e-6 as torch.nn.utils has it.
double ClipByNorm(const std::vector<at::Tensor>& gradients, double max_norm);

// Brings every element into [-max_value, max_value]. NaN stays NaN.
// max_value: > 0.
void ClipByValue(const std::vector<at::Tensor>& gradients, double max_value);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_GRADIENT_CLIPPING_H_
