// GeneratorWorker: an actor that generates images for somebody else to save.

#ifndef MINIRAY_ML_GAN_GENERATOR_WORKER_H_
#define MINIRAY_ML_GAN_GENERATOR_WORKER_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/gan/architecture.h"
#include "ml/gan/image_generator.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ml {

// Not thread-safe. Methods may throw what LibTorch throws.
class GeneratorWorker {
 public:
  // Takes the generator that images come from: GanModel's fields; and, if it
  // has classes and one is asked for, the label of all images.
  //
  // Errors: those of ImageGenerator::Create.
  absl::Status Load(const GanSizes& sizes, std::optional<int64_t> label,
                    NamedTensors weights);

  // Returns images [first, first + count) of the sequence that `seed` names
  // (see ImageGenerator): uint8 [count, C, H, W].
  //
  // Errors: FailedPrecondition before Load; InvalidArgument for first < 0, or
  // count outside [1, kMaxCount].
  absl::StatusOr<at::Tensor> Generate(uint64_t seed, int64_t first,
                                      int64_t count);

  static constexpr int64_t kMaxCount = int64_t{1} << 16;

 private:
  std::unique_ptr<ImageGenerator> generator_;
};
MINIRAY_ACTOR(GeneratorWorker, Constructor<>, &GeneratorWorker::Load,
              &GeneratorWorker::Generate);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_GAN_GENERATOR_WORKER_H_
