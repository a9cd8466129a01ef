// WeightExchange: the worker's side where weights travel compressed, or in
// parts to a parameter server of several shards. A worker owns one and gives it
// what the server calls:
//
//   absl::StatusOr<ReadOnly<ps::WeightMessage>> SendWeights(
//       const ps::WeightRequest& request) {
//     return exchange_.Send(request, weights_);
//   }
//   absl::Status ReceiveWeights(const ReadOnly<ps::WeightMessage>& message) {
//     return exchange_.Receive(message.value, [this](const NamedTensors& w) {
//       return SetWeights(w);
//     });
//   }
//   ps::WeightExchange exchange_;
//
// What it keeps: the weights that it received last, which the server knows too,
// so that differences are enough; and, where it compresses, what its
// compression has lost so far, which goes with the next difference (error
// feedback), and what it has lost of the difference under way. So up to three
// times the model.
//
// Not thread-safe: an actor's methods run one at a time.

#ifndef MINIRAY_PS_WEIGHT_EXCHANGE_H_
#define MINIRAY_PS_WEIGHT_EXCHANGE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/compression/difference.h"
#include "ps/model_cut.h"
#include "ps/weight_message.h"
#include "runtime/tensor/tensor_codec.h"
#include "runtime/wire/codec.h"

namespace miniray::ps {

class WeightExchange {
 public:
  // Returns what the request asks for. weights: the worker's, as now; the
  // result may refer to their memory, so they change only after the next
  // Receive, or when the synchronisation has failed, as with LendWeights.
  //
  // Errors: INVALID_ARGUMENT, the model cannot be cut into so many parts, or no
  // server asks like this.
  absl::StatusOr<ReadOnly<WeightMessage>> Send(const WeightRequest& request,
                                               const NamedTensors& weights);

  // Takes a message of the server. Once all parts of the new weights are there,
  // calls `set` with them and returns what it returns. They are read only and
  // valid until it returns.
  //
  // Errors: FAILED_PRECONDITION, a difference to weights that this worker has
  // not, for it has restarted. INVALID_ARGUMENT, the message is malformed.
  absl::Status Receive(
      const WeightMessage& message,
      absl::FunctionRef<absl::Status(const NamedTensors&)> set);

 private:
  // What compression has lost of one part.
  struct Lost {
    TensorList before;  // Up to the weights of base_id_.
    TensorList now;     // If the server uses what was sent since.
    bool sent = false;  // There is `now`.
  };

  absl::StatusOr<WeightMessage> Decoded(const WeightMessage& message);
  // A part of a model's cut; that of models of the base's layout is kept.
  absl::StatusOr<ModelPart> PartOf(const NamedTensors& model, bool like_base,
                                   int64_t part, int64_t num_parts);
  // A part of the base. REQUIRES: there is one.
  absl::StatusOr<NamedTensors> BasePart(int64_t part, int64_t num_parts);
  void SetBase(NamedTensors base, const std::string& id);
  void SettleLosses(const std::vector<int64_t>& contributors);

  std::string base_id_;  // Empty: there is no base.
  NamedTensors base_;
  std::vector<ModelPart> base_cut_;  // Empty: not found yet.
  int64_t worker_ = -1;              // Its index, as the last request told.
  int64_t num_parts_ = 1;
  std::map<int64_t, Lost> lost_;  // By part.
  // Weights of which some parts have come, in the order of their first.
  struct Incomplete {
    std::string id;
    std::map<int64_t, WeightMessage> parts;
  };
  std::vector<Incomplete> incomplete_;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_WEIGHT_EXCHANGE_H_
