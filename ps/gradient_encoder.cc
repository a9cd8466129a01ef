#include "ps/gradient_encoder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "ps/check_weights.h"
#include "ps/tensor_info.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {

absl::Status GradientEncoder::SetModel(const NamedTensors& weights,
                                       const std::vector<PushTerms>& terms) {
  terms_ = terms.front();
  std::vector<std::string> buffers;
  for (const PushTerms& of_shard : terms) {
    buffers.insert(buffers.end(), of_shard.buffers.begin(),
                   of_shard.buffers.end());
  }
  MR_ASSIGN_OR_RETURN(std::vector<ModelPart> parts,
                      CutModel(weights, static_cast<int64_t>(terms.size())));
  shards_.clear();
  for (ModelPart& part : parts) shards_.push_back({.part = std::move(part)});
  model_ = ModelSnapshot();
  model_.layout = ModelLayout::Of(weights);
  MR_ASSIGN_OR_RETURN(model_.info, MakeInfo(weights, buffers));
  SetWeights(weights);
  return absl::OkStatus();
}

void GradientEncoder::SetWeights(const NamedTensors& weights) {
  if (IsNeeded()) model_.weights = weights;
}

bool GradientEncoder::IsNeeded() const {
  return shards_.size() > 1 || Compresses();
}

bool GradientEncoder::HasPending(int64_t sequence,
                                 absl::Span<const size_t> shards) const {
  return std::all_of(shards.begin(), shards.end(), [&](size_t i) {
    const std::optional<Pending>& pending = shards_[i].pending;
    return pending.has_value() && pending->push.id.sequence == sequence;
  });
}

absl::StatusOr<bool> GradientEncoder::Check(
    const NamedTensors& gradients) const {
  const std::string who = absl::StrCat("worker ", worker_id_);
  NamedTensors complete = gradients;
  MR_RETURN_IF_ERROR(GradientModel::CheckAndComplete(model_, who, &complete));
  if (terms_.non_finite == NonFinitePolicy::kAllow) return true;
  const absl::Status finite = CheckFinite(gradients, who);
  if (finite.ok()) return true;
  if (terms_.non_finite == NonFinitePolicy::kRefuse) return finite;
  LOG(WARNING) << "left out of a step: " << finite.message();
  return false;
}

absl::StatusOr<std::vector<GradientPush>> GradientEncoder::Encode(
    const NamedTensors& gradients, int64_t sequence,
    absl::Span<const size_t> shards) {
  std::vector<GradientPush> pushes(shards.size());
  if (HasPending(sequence, shards)) {
    for (size_t k = 0; k < shards.size(); ++k) {
      pushes[k] = shards_[shards[k]].pending->push;
    }
    return pushes;
  }
  for (GradientPush& push : pushes) {
    push.id = {.worker = worker_id_, .sequence = sequence};
  }
  if (!IsNeeded()) {
    pushes.front().gradients = gradients;
    return pushes;
  }
  // What one shard would refuse must not reach the others.
  MR_ASSIGN_OR_RETURN(const bool counts, Check(gradients));
  if (!counts) {
    for (GradientPush& push : pushes) push.left_out = true;
    return pushes;
  }
  std::vector<at::Tensor> given(model_.weights.size());
  size_t next = 0;  // Buffers may be missing.
  for (size_t i = 0; i < given.size() && next < gradients.size(); ++i) {
    if (gradients[next].first != model_.weights[i].first) continue;
    given[i] = gradients[next++].second;
  }
  for (size_t k = 0; k < shards.size(); ++k) {
    EncodePart(given, &shards_[shards[k]], &pushes[k]);
  }
  return pushes;
}

void GradientEncoder::EncodePart(const std::vector<at::Tensor>& given,
                                 Shard* shard, GradientPush* push) const {
  NamedTensors tensors(given.size());  // TensorsOfPart takes whole models.
  for (size_t i = 0; i < given.size(); ++i) {
    tensors[i] = {model_.weights[i].first, given[i]};
  }
  ModelPart part;  // Of what is there.
  std::vector<size_t> places;
  TensorList owed;
  std::vector<bool> is_buffer;
  for (size_t i = 0; i < shard->part.size(); ++i) {
    const size_t tensor = shard->part[i].tensor;
    if (!given[tensor].defined()) continue;
    part.push_back(shard->part[i]);
    places.push_back(i);
    owed.push_back(shard->owed.empty() ? at::Tensor() : shard->owed[i]);
    is_buffer.push_back((*model_.info)[tensor].is_buffer);
  }
  push->gradients = TensorsOfPart(tensors, part);
  if (!Compresses() || part.empty()) return;
  Difference difference = EncodeDifference({.compression = terms_.from_workers,
                                            .to = &push->gradients,
                                            .owed = &owed,
                                            .as_it_is = is_buffer,
                                            .wants_lost = true});
  push->compression = terms_.from_workers;
  push->gradients = std::move(difference.encoded);
  TensorList lost(shard->part.size());
  for (size_t k = 0; k < places.size(); ++k) {
    lost[places[k]] = std::move(difference.lost[k]);
  }
  shard->pending = Pending{.push = *push, .lost = std::move(lost)};
}

void GradientEncoder::Settle(size_t shard, bool used) {
  std::optional<Pending>& pending = shards_[shard].pending;
  if (pending.has_value() && used) {
    shards_[shard].owed = std::move(pending->lost);
  }
  pending.reset();
}

}  // namespace miniray::ps
