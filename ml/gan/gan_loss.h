// What discriminator and generator of a GAN minimise. Losses are of logits,
// what a discriminator says before any sigmoid: above 0 means real.
//
// Shape letter: B images in a batch.

#ifndef MINIRAY_ML_GAN_GAN_LOSS_H_
#define MINIRAY_ML_GAN_GAN_LOSS_H_

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace miniray::ml {

enum class GanLoss {
  // Binary cross-entropy, s(x) = log(1 + exp(x)):
  //   L_D = (E[s(-D(x))] + E[s(D(G(z)))]) / 2
  //   L_G = E[s(-D(G(z)))]
  // With the half, both are log 2 = 0.693 where D cannot tell real from
  // generated. L_G is the form that does not saturate: -log of the probability
  // of being real, not log of that of being generated.
  // Source: Goodfellow et al., "Generative adversarial nets", NeurIPS 2014.
  kNonSaturating,

  // Hinge:
  //   L_D = E[max(0, 1 - D(x))] + E[max(0, 1 + D(G(z)))]
  //   L_G = -E[D(G(z))]
  // L_D is 2 where D says 0 to everything; L_G has no bound on either side.
  // Source: Lim, Ye, "Geometric GAN", 2017; Miyato et al., "Spectral
  // normalization for generative adversarial networks", ICLR 2018.
  kHinge,
};

// Returns the loss of a name: "non_saturating" or "hinge".
// Errors: InvalidArgument, with these names.
absl::StatusOr<GanLoss> ParseGanLoss(absl::string_view name);

// Returns the discriminator's loss, a scalar.
//
// logits: float32 [2B, 1], of B real images and behind them B generated ones.
// label_smoothing: real images count as real to 1 minus this; 0 with kHinge,
//   which has no use for it.
at::Tensor DiscriminatorLoss(GanLoss loss, const at::Tensor& logits,
                             double label_smoothing);

// Returns the generator's loss, a scalar. logits: float32 [B, 1], of generated
// images.
at::Tensor GeneratorLoss(GanLoss loss, const at::Tensor& logits);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_GAN_LOSS_H_
