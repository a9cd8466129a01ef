#include "ps/weight_exchange.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ps/model_cut.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

// More shards than any server has; bounds what a malformed message can ask.
constexpr int64_t kMaxParts = 1 << 16;

// Weights under way at a time: those of a push that was late, and the next.
constexpr size_t kMaxIncomplete = 3;

absl::Status CheckPart(int64_t part, int64_t num_parts) {
  if (num_parts >= 1 && num_parts <= kMaxParts && part >= 0 &&
      part < num_parts) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no part ", part, " of ", num_parts));
}

// Copies, in memory that nobody else sees.
NamedTensors CopyOf(const NamedTensors& tensors) {
  NamedTensors copy;
  for (const auto& [name, tensor] : tensors) {
    copy.emplace_back(
        name, tensor.detach().cpu().clone(at::MemoryFormat::Contiguous));
  }
  return copy;
}

}  // namespace

absl::StatusOr<ReadOnly<WeightMessage>> WeightExchange::Send(
    const WeightRequest& request, const NamedTensors& weights) {
  MR_RETURN_IF_ERROR(CheckPart(request.part, request.num_parts));
  if (request.compression.method != Compression::kNone) {
    MR_RETURN_IF_ERROR(Validate(request.compression, "compression"));
  }
  worker_ = request.worker;
  if (request.num_parts != num_parts_) lost_.clear();  // Another server.
  num_parts_ = request.num_parts;
  ReadOnly<WeightMessage> result;
  WeightMessage& message = result.value;
  message.base = base_id_;
  message.part = request.part;
  message.num_parts = request.num_parts;
  message.tensors = weights;
  const bool like_base = !base_id_.empty() && SameLayout(weights, base_);
  if (request.num_parts > 1) {
    MR_ASSIGN_OR_RETURN(
        const ModelPart part,
        PartOf(weights, like_base, request.part, request.num_parts));
    message.tensors = TensorsOfPart(weights, part);
    message.parts = PlacesOfPart(weights, part);
  }
  Lost& lost = lost_[request.part];
  lost.sent = false;
  if (request.compression.method == Compression::kNone || !like_base ||
      request.base != base_id_) {
    return result;
  }
  MR_ASSIGN_OR_RETURN(const NamedTensors base,
                      BasePart(request.part, request.num_parts));
  const std::set<std::string> names(request.as_they_are.begin(),
                                    request.as_they_are.end());
  std::vector<bool> as_it_is;
  for (const auto& [name, tensor] : message.tensors) {
    as_it_is.push_back(names.contains(name));
  }
  Difference difference =
      EncodeDifference({.compression = request.compression,
                        .to = &message.tensors,
                        .from = &base,
                        .owed = lost.before.empty() ? nullptr : &lost.before,
                        .as_it_is = std::move(as_it_is),
                        .wants_lost = true});
  message.compression = request.compression;
  message.tensors = std::move(difference.encoded);
  lost.now = std::move(difference.lost);
  lost.sent = true;
  return result;
}

absl::StatusOr<ModelPart> WeightExchange::PartOf(const NamedTensors& model,
                                                 bool like_base, int64_t part,
                                                 int64_t num_parts) {
  const auto index = static_cast<size_t>(part);
  if (like_base && base_cut_.size() == static_cast<size_t>(num_parts)) {
    return base_cut_[index];
  }
  MR_ASSIGN_OR_RETURN(std::vector<ModelPart> parts, CutModel(model, num_parts));
  const ModelPart result = parts[index];
  if (like_base) base_cut_ = std::move(parts);
  return result;
}

absl::StatusOr<NamedTensors> WeightExchange::BasePart(int64_t part,
                                                      int64_t num_parts) {
  if (num_parts == 1) return base_;
  MR_ASSIGN_OR_RETURN(const ModelPart place,
                      PartOf(base_, /*like_base=*/true, part, num_parts));
  return TensorsOfPart(base_, place);
}

void WeightExchange::SetBase(NamedTensors base, const std::string& id) {
  if (!SameLayout(base, base_)) base_cut_.clear();
  base_ = std::move(base);
  base_id_ = id;
}

absl::StatusOr<WeightMessage> WeightExchange::Decoded(
    const WeightMessage& message) {
  WeightMessage decoded = message;
  decoded.compression = {};
  if (message.compression.method == Compression::kNone) {
    decoded.tensors = CopyOf(message.tensors);
    return decoded;
  }
  MR_RETURN_IF_ERROR(Validate(message.compression, "compression"));
  // The server repeats what has come already.
  const bool has_it = !base_id_.empty() && message.id == base_id_;
  if (!has_it && (base_id_.empty() || message.base != base_id_)) {
    return absl::FailedPreconditionError(
        "the parameter server sent a difference to weights that this worker "
        "has not; has it restarted? Synchronise again");
  }
  MR_ASSIGN_OR_RETURN(const NamedTensors base,
                      BasePart(message.part, message.num_parts));
  if (has_it) {
    decoded.tensors = base;
    return decoded;
  }
  MR_ASSIGN_OR_RETURN(decoded.tensors, ApplyDifference(message.compression,
                                                       message.tensors, base));
  return decoded;
}

absl::Status WeightExchange::Receive(
    const WeightMessage& message,
    absl::FunctionRef<absl::Status(const NamedTensors&)> set) {
  MR_RETURN_IF_ERROR(CheckPart(message.part, message.num_parts));
  if (message.id.empty()) {
    return absl::InvalidArgumentError("the weights have no id");
  }
  MR_ASSIGN_OR_RETURN(WeightMessage part, Decoded(message));
  auto next = std::find_if(
      incomplete_.begin(), incomplete_.end(),
      [&](const Incomplete& weights) { return weights.id == message.id; });
  if (next == incomplete_.end()) {
    if (incomplete_.size() == kMaxIncomplete) {
      incomplete_.erase(incomplete_.begin());
    }
    next = incomplete_.insert(incomplete_.end(), Incomplete{.id = message.id});
  }
  // The server repeats in another cut what it began to send.
  if (!next->parts.empty() &&
      next->parts.begin()->second.num_parts != message.num_parts) {
    next->parts.clear();
  }
  next->parts[message.part] = std::move(part);
  if (static_cast<int64_t>(next->parts.size()) < message.num_parts) {
    return absl::OkStatus();
  }
  std::map<int64_t, WeightMessage> all = std::move(next->parts);
  // Each shard sends in order: what began before these is given up.
  incomplete_.erase(incomplete_.begin(), next + 1);
  NamedTensors weights;
  if (message.num_parts == 1) {
    weights = std::move(all.begin()->second.tensors);
  } else {
    std::vector<const WeightMessage*> parts;
    for (const auto& [index, one] : all) parts.push_back(&one);
    MR_ASSIGN_OR_RETURN(weights, JoinParts(parts));
  }
  SettleLosses(message.contributors);
  MR_RETURN_IF_ERROR(set(weights));
  // Not before: a worker that could not take them goes on from the old ones,
  // and the server is to see that.
  SetBase(std::move(weights), message.id);
  return absl::OkStatus();
}

void WeightExchange::SettleLosses(const std::vector<int64_t>& contributors) {
  if (contributors.empty()) {  // These weights come from elsewhere.
    lost_.clear();
    return;
  }
  const bool used = std::find(contributors.begin(), contributors.end(),
                              worker_) != contributors.end();
  for (auto& [part, lost] : lost_) {
    if (used && lost.sent) std::swap(lost.before, lost.now);
    lost.now.clear();
    lost.sent = false;
  }
}

}  // namespace miniray::ps
