// Mixed precision: within a scope, the operations that bear it (matrix
// products, convolutions) compute in a 16-bit type, the others in float32.
// Parameters and their gradients stay float32.
//
//   {
//     const train::Autocast autocast(train::Precision::kBfloat16, device);
//     loss = model->forward(x) ...;
//   }
//   loss.backward();  // Outside: it takes the types that forward had.

#ifndef MINIRAY_TRAIN_MIXED_PRECISION_H_
#define MINIRAY_TRAIN_MIXED_PRECISION_H_

#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "c10/core/ScalarType.h"

namespace miniray::train {

enum class Precision {
  kFloat32,
  kBfloat16,
  kFloat16,  // On CUDA only; losses need a LossScaler.
};

// FAILED_PRECONDITION if this precision cannot be on such a device.
absl::Status CheckPrecision(Precision precision, const c10::Device& device);

// LibTorch's autocast, in this thread, for the life of the object. Scopes may
// nest; each puts back what was before it. As the outermost ends, the copies of
// weights in 16 bits are dropped: they are stale once an optimizer has stepped.
//
// Of kFloat32 it turns autocast off within.
class Autocast {
 public:
  // REQUIRES: CheckPrecision(precision, device) is OK.
  Autocast(Precision precision, const c10::Device& device);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const c10::DeviceType device_;
  const bool before_enabled_;
  const c10::ScalarType before_type_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_MIXED_PRECISION_H_
