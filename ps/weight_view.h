// WeightView: the server's side of weight_exchange.h: what the workers hold, as
// the server knows it, and how they come to hold the next weights.
//
// With lossy compression towards the workers they hold other weights than the
// server, its "view". The server sends C(weights - view) and adds what that
// decodes to to the view, which thereby stays what all workers hold, to the
// bit; what was lost is part of the next difference. In the other direction it
// takes a worker's update, weights - view, as one to its own weights. So
// nothing is lost for good in either direction:
//   Karimireddy, Rebjock, Stich, Jaggi 2019, Error Feedback Fixes SignSGD and
//   other Gradient Compression Schemes;
//   Tang, Lian, Yu, Zhang, Liu 2019, DoubleSqueeze (both directions).
//
// Not thread-safe.

#ifndef MINIRAY_PS_WEIGHT_VIEW_H_
#define MINIRAY_PS_WEIGHT_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/compression/compression.h"
#include "ps/sync_strategy.h"
#include "ps/weight_message.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

class WeightView {
 public:
  struct Options {
    CompressionOptions from_workers;
    CompressionOptions to_workers;
    int64_t part = 0;  // Of the model.
    int64_t num_parts = 1;
  };
  explicit WeightView(const Options& options) : options_(options) {}

  // What to ask worker `worker` for.
  WeightRequest RequestTo(int64_t worker) const;

  // Returns the worker's contribution for a server with these weights.
  // *holds_view: whether the worker can be sent a difference.
  //
  // Errors: INVALID_ARGUMENT, the message is not what was asked for.
  absl::StatusOr<NamedTensors> ContributionIn(const WeightMessage& message,
                                              const NamedTensors& weights,
                                              bool* holds_view) const;

  // The server's weights are `weights` from now on, made of contributions of
  // these workers. `id`: theirs alone.
  // info: of each tensor. Throws what LibTorch throws.
  void Follow(const NamedTensors& weights, const std::vector<TensorInfo>& info,
              std::vector<int64_t> contributors, const std::string& id);

  // The same for weights from elsewhere: workers will be sent all of them.
  void Replace(const NamedTensors& weights, const std::vector<TensorInfo>& info,
               const std::string& id);

  // What brings any worker to the view. It may be sent again and again.
  const WeightMessage& full() const { return full_; }

  // The same for those that held the view before the last Follow; none if it
  // saves nothing.
  const std::optional<WeightMessage>& difference() const { return difference_; }

  // Where the tensors lie in the whole model's; set by the first contribution
  // or by whoever brings the weights.
  const std::vector<TensorPart>& places() const { return full_.parts; }
  void set_places(std::vector<TensorPart> places) {
    full_.parts = std::move(places);
  }

  // To be saved with the server's weights, and back.
  const std::string& id() const { return full_.id; }
  const NamedTensors& tensors() const { return full_.tensors; }
  const std::vector<int64_t>& contributors() const {
    return full_.contributors;
  }
  void Restore(NamedTensors tensors, const std::vector<TensorInfo>& info,
               std::vector<int64_t> contributors, const std::string& id);

 private:
  void NoteBuffers(const std::vector<TensorInfo>& info);

  Options options_;
  std::vector<bool> is_buffer_;              // By tensor.
  WeightMessage full_;                       // The view; no id: there is none.
  std::optional<WeightMessage> difference_;  // From the view before.
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_WEIGHT_VIEW_H_
