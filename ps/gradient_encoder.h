// GradientEncoder: what becomes of a worker's gradients before they travel:
// they are checked, cut into a part for each shard of the server, and
// compressed.
//
// What compression loses of one gradient is added to the worker's next (error
// feedback), but only if the one was used:
//   Karimireddy, Rebjock, Stich, Jaggi 2019, Error Feedback Fixes SignSGD and
//   other Gradient Compression Schemes.
// A gradient that is sent again is the same bytes.
//
// It keeps one more gradient for what is lost, and until it is answered another
// one and the compressed form.

#ifndef MINIRAY_PS_GRADIENT_ENCODER_H_
#define MINIRAY_PS_GRADIENT_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ps/compression/difference.h"
#include "ps/gradient_messages.h"
#include "ps/gradient_model.h"
#include "ps/model_cut.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

// Not thread-safe.
class GradientEncoder {
 public:
  explicit GradientEncoder(int worker_id) : worker_id_(worker_id) {}

  // The server's model, and what its shards say, in their order; one: the
  // server itself. What was lost is forgotten.
  // Errors: INVALID_ARGUMENT, they do not fit together.
  absl::Status SetModel(const NamedTensors& weights,
                        const std::vector<PushTerms>& terms);

  bool HasModel() const { return !shards_.empty(); }

  // Other weights of the same model: older ones are let go.
  void SetWeights(const NamedTensors& weights);

  // If not, gradients travel as they are, and the server checks them.
  bool IsNeeded() const;
  const ModelLayout& layout() const { return model_.layout; }

  // Returns what goes to each of these shards as the worker's gradient number
  // `sequence`; the version is left to the caller. If it has been asked for
  // before, and not settled, the same compressed bytes, whatever `gradients`
  // are.
  //
  // Errors: INVALID_ARGUMENT, they are not of the server's model, or not finite
  // (as the server's policy says), with worker and tensor.
  absl::StatusOr<std::vector<GradientPush>> Encode(
      const NamedTensors& gradients, int64_t sequence,
      absl::Span<const size_t> shards);

  // The shard has used its part, or will not.
  void Settle(size_t shard, bool used);

 private:
  struct Pending {
    GradientPush push;
    TensorList lost;
  };
  struct Shard {
    ModelPart part;
    // By tensor of the part; undefined where nothing is lost. Empty: nowhere.
    TensorList owed;
    std::optional<Pending> pending;
  };

  bool Compresses() const {
    return terms_.from_workers.method != Compression::kNone;
  }
  bool HasPending(int64_t sequence, absl::Span<const size_t> shards) const;
  // Whether a gradient goes into a step.
  absl::StatusOr<bool> Check(const NamedTensors& gradients) const;
  void EncodePart(const std::vector<at::Tensor>& given, Shard* shard,
                  GradientPush* push) const;

  const int worker_id_;
  PushTerms terms_;  // What all shards say.
  ModelSnapshot model_;
  std::vector<Shard> shards_;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_GRADIENT_ENCODER_H_
