#include "ps/gradient_client.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "ps/check_weights.h"
#include "ps/model_cut.h"
#include "ps/weight_message.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

const CallOptions kRetries = {.max_retries = -1};

template <auto Method, class R, class... Args>
ObjectRef<R> CallTo(const AnyActorHandle& shard, const Args&... args) {
  return shard.CallByNameWith<R>(kRetries, MethodName<Method>(), args...);
}

bool IsWhole(const at::Tensor& tensor, const TensorPart& place) {
  return tensor.sizes() == at::IntArrayRef(place.shape);
}

}  // namespace

GradientClient::GradientClient(ActorHandle<ParameterServer> server,
                               int worker_id)
    : server_(std::move(server)), worker_id_(worker_id), encoder_(worker_id) {}

absl::Status GradientClient::Named(size_t shard,
                                   const absl::Status& error) const {
  if (!IsSharded()) return error;
  return Annotate(error, absl::StrCat("shard ", shard, " of ", shards_.size()));
}

int64_t GradientClient::version() const {
  int64_t oldest = std::numeric_limits<int64_t>::max();
  for (const Shard& shard : shards_) {
    oldest = std::min(oldest, shard.held.version);
  }
  return shards_.empty() ? 0 : oldest;
}

absl::Status GradientClient::FindShards() {
  if (!shards_.empty()) return absl::OkStatus();
  MR_ASSIGN_OR_RETURN(
      const std::vector<AnyActorHandle> actors,
      server_.With(kRetries).Call<&ParameterServer::GetShards>().Get());
  for (const AnyActorHandle& actor : actors) shards_.push_back({actor});
  if (shards_.empty()) shards_.push_back({server_});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<JoinReply>> GradientClient::JoinAll(
    const NamedTensors& weights, const std::vector<std::string>& buffers) {
  std::vector<ModelPart> parts;
  if (IsSharded()) {
    MR_RETURN_IF_ERROR(CheckForm(weights, absl::StrCat("worker ", worker_id_)));
    auto cut = CutModel(weights, static_cast<int64_t>(shards_.size()));
    if (!cut.ok()) {
      return Annotate(cut.status(), absl::StrCat("worker ", worker_id_));
    }
    parts = *std::move(cut);
  }
  std::vector<ObjectRef<JoinReply>> calls;
  for (size_t i = 0; i < shards_.size(); ++i) {
    calls.push_back(CallTo<&ParameterServer::JoinGradients, JoinReply>(
        shards_[i].actor, worker_id_,
        IsSharded() ? TensorsOfPart(weights, parts[i]) : weights, buffers));
  }
  std::vector<JoinReply> replies;
  absl::Status first_error;
  for (size_t i = 0; i < calls.size(); ++i) {
    absl::StatusOr<JoinReply> reply = calls[i].Get();
    first_error.Update(Named(i, reply.status()));
    if (reply.ok()) replies.push_back(*std::move(reply));
  }
  if (!first_error.ok()) return first_error;
  return replies;
}

absl::StatusOr<ReadOnly<NamedTensors>> GradientClient::Join(
    const NamedTensors& weights, const std::vector<std::string>& buffers) {
  MR_RETURN_IF_ERROR(FindShards());
  MR_ASSIGN_OR_RETURN(std::vector<JoinReply> replies,
                      JoinAll(weights, buffers));
  const auto lacks_weights = [](const JoinReply& reply) {
    return reply.model.version == 0;
  };
  if (std::any_of(replies.begin(), replies.end(), lacks_weights)) {
    // The server in front sees to it that all begin with one worker's.
    MR_RETURN_IF_ERROR(
        server_.With(kRetries)
            .Call<&ParameterServer::JoinGradients>(worker_id_, weights, buffers)
            .Get()
            .status());
    MR_ASSIGN_OR_RETURN(replies, JoinAll(weights, buffers));
  }
  if (std::any_of(replies.begin(), replies.end(), lacks_weights)) {
    return absl::UnavailableError(
        "a shard of the parameter server has just lost its weights; it "
        "restarts "
        "with them where state_dir is set");
  }
  std::vector<PushTerms> terms;
  push_is_open_ = false;
  last_sequence_ = 0;
  for (const JoinReply& reply : replies) {
    last_sequence_ = std::max(last_sequence_, reply.last_sequence);
    terms.push_back(reply.terms);
  }
  for (size_t i = 0; i < replies.size(); ++i) {
    Adopt(i, replies[i].model, replies[i].terms);
    shards_[i].answered = last_sequence_;
  }
  MR_RETURN_IF_ERROR(AdoptForm(terms));
  if (IsSharded()) {
    // Each has seen its part alone.
    MR_RETURN_IF_ERROR(CheckLayout(weights, encoder_.layout(),
                                   absl::StrCat("worker ", worker_id_),
                                   "the parameter server"));
  }
  MR_RETURN_IF_ERROR(GiveUpTornGradient(replies));
  return Whole();
}

void GradientClient::Adopt(size_t shard, VersionedWeights model,
                           const PushTerms& terms) {
  shards_[shard].held = std::move(model);
  shards_[shard].places = terms.places;
}

absl::Status GradientClient::AdoptForm(const std::vector<PushTerms>& terms) {
  in_rounds_ = terms.front().in_rounds;
  MR_ASSIGN_OR_RETURN(const ReadOnly<NamedTensors> whole, Whole());
  return encoder_.SetModel(whole.value, terms);
}

absl::Status GradientClient::GiveUpTornGradient(
    const std::vector<JoinReply>& replies) {
  // In rounds versions tell all, and clocks hold up nobody.
  if (in_rounds_) return absl::OkStatus();
  std::vector<size_t> behind;
  for (size_t i = 0; i < replies.size(); ++i) {
    if (replies[i].last_sequence != last_sequence_) behind.push_back(i);
  }
  return LeaveOut(last_sequence_, behind);
}

absl::Status GradientClient::LeaveOut(int64_t sequence,
                                      const std::vector<size_t>& shards) {
  std::vector<ObjectRef<PushReply>> calls;
  for (const size_t i : shards) {
    const GradientPush push = {
        .id = {.worker = worker_id_, .sequence = sequence},
        .version = shards_[i].held.version,
        .left_out = true};
    calls.push_back(CallTo<&ParameterServer::PushGradients, PushReply>(
        shards_[i].actor, ReadOnly<GradientPush>{push}));
  }
  absl::Status first_error;
  for (size_t k = 0; k < calls.size(); ++k) {
    absl::StatusOr<PushReply> reply = calls[k].Get();
    if (reply.ok()) {
      shards_[shards[k]].held = std::move(reply->model);
    } else if (!absl::IsDeadlineExceeded(reply.status())) {
      // Its wait was too long; it is taken.
      first_error.Update(Named(shards[k], reply.status()));
    }
  }
  return first_error;
}

absl::Status GradientClient::GiveUpOpenPush() {
  if (!push_is_open_) return absl::OkStatus();
  const int64_t sequence = last_sequence_ + 1;
  if (IsSharded() && !in_rounds_) {
    std::vector<size_t> behind;
    for (size_t i = 0; i < shards_.size(); ++i) {
      if (shards_[i].answered < sequence) behind.push_back(i);
    }
    MR_RETURN_IF_ERROR(LeaveOut(sequence, behind));
  }
  last_sequence_ = sequence;
  push_is_open_ = false;
  return absl::OkStatus();
}

absl::StatusOr<ReadOnly<NamedTensors>> GradientClient::Whole() const {
  if (!IsSharded()) return shards_.front().held.weights;
  ReadOnly<NamedTensors> whole;
  std::vector<WeightMessage> cut(shards_.size());
  for (size_t i = 0; i < shards_.size(); ++i) {
    const NamedTensors& tensors = shards_[i].held.weights.value;
    const std::vector<TensorPart>& places = shards_[i].places;
    if (tensors.size() != places.size()) {
      return Named(i, absl::InternalError("its part has lost tensors"));
    }
    for (size_t k = 0; k < tensors.size(); ++k) {
      if (places[k].begin == 0) whole.value.push_back(tensors[k]);
      if (IsWhole(tensors[k].second, places[k])) continue;
      cut[i].tensors.push_back(tensors[k]);
      cut[i].parts.push_back(places[k]);
    }
  }
  std::vector<const WeightMessage*> messages;
  for (const WeightMessage& message : cut) messages.push_back(&message);
  MR_ASSIGN_OR_RETURN(NamedTensors joined, JoinParts(messages));
  auto next = joined.begin();
  for (auto& [name, tensor] : whole.value) {
    if (next == joined.end() || next->first != name) continue;
    tensor = std::move((next++)->second);
  }
  return whole;
}

std::vector<size_t> GradientClient::TargetsOf(int64_t sequence) const {
  std::vector<size_t> targets;
  int64_t oldest = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].answered >= sequence) continue;
    targets.push_back(i);
    oldest = std::min(oldest, shards_[i].held.version);
  }
  if (in_rounds_) {
    std::erase_if(targets,
                  [&](size_t i) { return shards_[i].held.version > oldest; });
  }
  return targets;
}

absl::StatusOr<PushReply> GradientClient::Push(
    const ReadOnly<NamedTensors>& gradients) {
  if (version() == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", worker_id_, " has no weights of the server; call Join"));
  }
  const int64_t sequence = last_sequence_ + 1;
  const std::vector<size_t> targets = TargetsOf(sequence);
  MR_ASSIGN_OR_RETURN(std::vector<GradientPush> pushes,
                      encoder_.Encode(gradients.value, sequence, targets));
  push_is_open_ = true;
  std::vector<ObjectRef<PushReply>> calls;
  for (size_t k = 0; k < targets.size(); ++k) {
    const Shard& shard = shards_[targets[k]];
    pushes[k].version = shard.held.version;
    calls.push_back(CallTo<&ParameterServer::PushGradients, PushReply>(
        shard.actor, ReadOnly<GradientPush>{std::move(pushes[k])}));
  }
  PushReply all = {.accepted = true};
  absl::Status first_error;
  // All are waited for: until then they read the gradients.
  for (size_t k = 0; k < targets.size(); ++k) {
    Shard& shard = shards_[targets[k]];
    absl::StatusOr<PushReply> reply = calls[k].Get();
    if (absl::IsOutOfRange(reply.status())) {
      // The server restarted from an older version than it had given out.
      LOG(WARNING) << reply.status().message();
      reply = PushReply();
      const absl::Status pulled = PullShard(targets[k]);
      if (!pulled.ok()) {
        first_error.Update(pulled);
        continue;
      }
    } else if (!reply.ok()) {
      first_error.Update(Named(targets[k], reply.status()));
      // Others may come in its place.
      if (absl::IsInvalidArgument(reply.status()) ||
          absl::IsInternal(reply.status())) {
        encoder_.Settle(targets[k], /*used=*/false);
      }
      continue;
    } else {
      shard.held = std::move(reply->model);
    }
    shard.answered = sequence;
    encoder_.Settle(targets[k], reply->accepted || reply->repeated);
    all.accepted = all.accepted && reply->accepted;
    all.repeated = all.repeated || reply->repeated;
    all.staleness = std::max(all.staleness, reply->staleness);
    all.lr_scale = std::min(all.lr_scale, reply->lr_scale);
  }
  if (!first_error.ok()) return first_error;
  last_sequence_ = sequence;
  push_is_open_ = false;
  all.model.version = version();
  MR_ASSIGN_OR_RETURN(all.model.weights, Whole());
  encoder_.SetWeights(all.model.weights.value);
  return all;
}

absl::Status GradientClient::PullShard(size_t shard) {
  absl::StatusOr<PullReply> reply =
      CallTo<&ParameterServer::PullVersionedWeights, PullReply>(
          shards_[shard].actor)
          .Get();
  if (!reply.ok()) return Named(shard, reply.status());
  Adopt(shard, std::move(reply->model), reply->terms);
  return absl::OkStatus();
}

absl::StatusOr<ReadOnly<NamedTensors>> GradientClient::Pull() {
  MR_RETURN_IF_ERROR(FindShards());
  MR_RETURN_IF_ERROR(GiveUpOpenPush());
  std::vector<ObjectRef<PullReply>> calls;
  for (const Shard& shard : shards_) {
    calls.push_back(
        CallTo<&ParameterServer::PullVersionedWeights, PullReply>(shard.actor));
  }
  std::vector<PullReply> replies;
  for (size_t i = 0; i < calls.size(); ++i) {
    absl::StatusOr<PullReply> reply = calls[i].Get();
    if (!reply.ok()) return Named(i, reply.status());
    replies.push_back(*std::move(reply));
  }
  std::vector<PushTerms> terms;
  for (size_t i = 0; i < replies.size(); ++i) {
    Adopt(i, std::move(replies[i].model), replies[i].terms);
    terms.push_back(std::move(replies[i].terms));
    // What the caller pushes next is another gradient.
    if (encoder_.HasModel()) encoder_.Settle(i, /*used=*/false);
  }
  MR_ASSIGN_OR_RETURN(ReadOnly<NamedTensors> whole, Whole());
  if (encoder_.HasModel()) {
    encoder_.SetWeights(whole.value);
  } else {
    MR_RETURN_IF_ERROR(AdoptForm(terms));
  }
  return whole;
}

absl::Status GradientClient::Leave() {
  MR_RETURN_IF_ERROR(FindShards());
  std::vector<ObjectRef<void>> calls;
  for (const Shard& shard : shards_) {
    calls.push_back(CallTo<&ParameterServer::LeaveGradients, void>(shard.actor,
                                                                   worker_id_));
  }
  absl::Status first_error;
  for (size_t i = 0; i < calls.size(); ++i) {
    first_error.Update(Named(i, calls[i].Get()));
  }
  return first_error;
}

}  // namespace miniray::ps
