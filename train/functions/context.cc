#include "train/functions/context.h"

#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "train/collective/collective_error.h"

namespace miniray::train {
namespace {

// A setting's value if the lookup found it of the right type.
template <class T>
T ValueOrThrow(const absl::StatusOr<T>& value) {
  if (value.ok()) return *value;
  throw std::invalid_argument(
      absl::StrCat("the config: ", value.status().message()));
}

// See Context::GetCheckpoint.
CheckpointFiles Merged(CheckpointFiles own, CheckpointFiles rank0s) {
  own.merge(rank0s);
  return own;
}

}  // namespace

Context::Context(GenerationStart start, ReportSink& sink, SharedStart shared)
    : checkpoint_(
          Merged(std::move(start.checkpoint), std::move(shared.checkpoint))),
      start_(std::move(start)),
      datasets_(std::move(shared.datasets)),
      sink_(sink),
      next_report_(start_.first_report) {}

void Context::RequireConfig(absl::string_view name) const {
  if (start_.config.Has(name)) return;
  throw std::invalid_argument(absl::StrCat(
      "the config has no '", name, "'; it is {", start_.config.ToString(),
      "}: set it in TorchTrainerOptions::config, or give a default here"));
}

bool Context::BoolConfig(absl::string_view name) const {
  return ValueOrThrow(start_.config.GetBool(name, false));
}

int64_t Context::IntConfig(absl::string_view name, int64_t min,
                           uint64_t max) const {
  const int64_t value = ValueOrThrow(start_.config.GetInt(name, 0));
  if (value >= min && (value < 0 || static_cast<uint64_t>(value) <= max)) {
    return value;
  }
  throw std::invalid_argument(absl::StrCat("the config: ", name, " is ", value,
                                           ", and must lie within ", min,
                                           " and ", max));
}

double Context::DoubleConfig(absl::string_view name) const {
  return ValueOrThrow(start_.config.GetDouble(name, 0));
}

std::string Context::StringConfig(absl::string_view name) const {
  return ValueOrThrow(start_.config.GetString(name, ""));
}

DatasetShard Context::GetDatasetShard(absl::string_view name) const {
  const auto it = datasets_.find(std::string(name));
  if (it == datasets_.end()) {
    throw std::invalid_argument(
        absl::StrCat("there is no data set '", name, "', but {",
                     absl::StrJoin(datasets_, ", ",
                                   [](std::string* out, const auto& named) {
                                     out->append(named.first);
                                   }),
                     "}: name it in TorchTrainerOptions::datasets"));
  }
  absl::StatusOr<DatasetShard> shard = it->second.Shard(rank(), world_size());
  if (shard.ok()) {
    shard->set_device(device());
    return *std::move(shard);
  }
  throw std::invalid_argument(
      absl::StrCat("data set ", name, ": ", shard.status().message()));
}

const std::shared_ptr<ProcessGroup>& Context::process_group() {
  absl::Status usable = group_ == nullptr ? ConnectRanks() : group_->status();
  if (!usable.ok()) throw CollectiveError(std::move(usable));
  return group_;
}

absl::Status Context::ConnectRanks() {
  const absl::Duration timeout =
      absl::Milliseconds(start_.collective_timeout_ms);
  ProcessGroup::Options options = {.rank = rank(),
                                   .world_size = world_size(),
                                   .timeout = timeout,
                                   .start_timeout = timeout,
                                   .name = "train"};
  if (world_size() > 1) {
    MR_ASSIGN_OR_RETURN(options.address,
                        CollectiveAddress(ActorContext::Current()->cluster()));
  }
  group_ = std::make_shared<ProcessGroup>(std::move(options));
  aborts_group_ = OnAbort(
      [group = group_](const absl::Status& reason) { group->Abort(reason); });
  const std::string stage = Stage();
  SetStage("connects to the other ranks");
  MR_RETURN_IF_ERROR(world_size() > 1 ? group_->Start(start_.rendezvous.value())
                                      : group_->StartAlone());
  SetStage(stage);
  return absl::OkStatus();
}

bool Context::checkpoint_is_due() const {
  return wants_checkpoint_ ||
         (next_report_ + 1) % start_.checkpoint_frequency == 0;
}

void Context::Report(const Metrics& metrics, CheckpointFiles checkpoint) {
  if (stopped_) throw internal::TrainingEnds();
  train::Checkpoint whole = {.workers = {std::move(checkpoint)}};
  if (const absl::Status names = CheckFileNames(whole); !names.ok()) {
    throw std::invalid_argument(std::string(names.message()));
  }
  SetStage(absl::StrCat("waits in report ", next_report_));
  const absl::StatusOr<ReportReply> reply =
      sink_.Exchange({.number = next_report_,
                      .metrics = metrics,
                      .checkpoint = std::move(whole.workers[0])});
  if (!reply.ok()) {
    throw PeerFailure(
        absl::StrCat("report ", next_report_, ": ", reply.status().message()));
  }
  ++next_report_;
  wants_checkpoint_ = reply->wants_checkpoint;
  stopped_ = reply->stop;
  SetStage(absl::StrCat("runs, after report ", next_report_ - 1));
  if (stopped_) throw internal::TrainingEnds();
}

void Context::SetStage(std::string stage) {
  const absl::MutexLock lock(&mu_);
  stage_ = std::move(stage);
}

std::string Context::Stage() const {
  const absl::MutexLock lock(&mu_);
  return stage_;
}

bool Context::aborted() const {
  const absl::MutexLock lock(&mu_);
  return !abort_reason_.ok();
}

std::unique_ptr<Context::AbortHandler> Context::OnAbort(
    std::function<void(const absl::Status&)> handler) {
  absl::Status reason;
  int64_t id = 0;
  {
    const absl::MutexLock lock(&mu_);
    id = next_handler_++;
    reason = abort_reason_;
    if (reason.ok()) handlers_[id] = std::move(handler);
  }
  if (!reason.ok()) handler(reason);
  return std::unique_ptr<AbortHandler>(new AbortHandler(*this, id));
}

void Context::RemoveHandler(int64_t id) {
  const absl::MutexLock lock(&mu_);
  handlers_.erase(id);
  const auto is_over = [this, id]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return running_handler_ != id;
  };
  mu_.Await(absl::Condition(&is_over));
}

void Context::Abort(const absl::Status& reason) {
  const absl::MutexLock lock(&mu_);
  if (!abort_reason_.ok()) return;
  abort_reason_ = reason;
  while (!handlers_.empty()) {
    const auto handler = handlers_.extract(handlers_.begin());
    running_handler_ = handler.key();
    mu_.Unlock();
    handler.mapped()(reason);
    mu_.Lock();
    running_handler_ = -1;
  }
}

}  // namespace miniray::train
