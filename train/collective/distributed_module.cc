#include "train/collective/distributed_module.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/core/grad_mode.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"
#include "torch/csrc/autograd/engine.h"
#include "torch/csrc/autograd/function.h"
#include "torch/csrc/autograd/utils/lambda_post_hook.h"
#include "torch/csrc/autograd/variable.h"
#include "torch/nn/module.h"
#include "train/collective/collective_error.h"
#include "train/collective/gradient_bucket.h"
#include "train/collective/module_check.h"

namespace miniray::train {
namespace {

using internal::Description;
using internal::GradientBucket;

// Errors that name all parameters of a large model help nobody.
constexpr size_t kMaxNamed = 10;

std::string Describe(const at::Tensor& tensor) {
  return absl::StrCat(at::toString(tensor.scalar_type()), " [",
                      absl::StrJoin(tensor.sizes(), ", "), "]",
                      tensor.is_cpu() ? "" : " on a GPU");
}

std::string Names(const std::vector<std::string>& names) {
  const auto end = names.begin() + std::min(names.size(), kMaxNamed);
  std::string text = absl::StrJoin(names.begin(), end, ", ");
  if (names.size() > kMaxNamed) {
    absl::StrAppend(&text, " and ", names.size() - kMaxNamed, " more");
  }
  return text;
}

absl::Status Check(const DistributedOptions& options) {
  if (options.first_bucket_bytes < 1 || options.bucket_bytes < 1) {
    return absl::InvalidArgumentError(
        "first_bucket_bytes and bucket_bytes must be at least 1");
  }
  if (options.broadcast_buffers_every < 0) {
    return absl::InvalidArgumentError(
        "broadcast_buffers_every must be 0 (never) or more");
  }
  return absl::OkStatus();
}

struct Parameter {
  std::string name;
  at::Tensor tensor;
  // Kept alive: its hook goes with it.
  std::shared_ptr<torch::autograd::Node> accumulator;
  uintptr_t hook = 0;
  size_t bucket = 0;
  size_t slot = 0;
  bool ready = false;    // Its gradient is in its bucket, in this pass.
  bool touched = false;  // It got a gradient since the last reduction.
};

struct Bucket {
  GradientBucket gradients;
  std::vector<size_t> parameters;  // By slot.
  size_t pending = 0;              // Of them, in this pass.
};

}  // namespace

struct DistributedModule::State
    : public std::enable_shared_from_this<DistributedModule::State> {
  std::shared_ptr<ProcessGroup> group;
  internal::Backend* backend = nullptr;  // The group's, for the gradients.
  DistributedOptions options;

  std::vector<Parameter> parameters;  // Those that required gradients.
  std::vector<std::pair<std::string, at::Tensor>> frozen;
  std::vector<at::Tensor> buffers;

  std::vector<Bucket> buckets;
  bool rebuilt = false;          // Buckets are in the order of arrival.
  std::vector<size_t> arrivals;  // In the first pass, of all parameters.

  int no_sync = 0;
  bool in_pass = false;
  bool shadow = false;     // The pass is another rank's: see ShadowBackward.
  size_t next_bucket = 0;  // The first one that has not been launched.
  Stats stats;

  void BuildBuckets(const std::vector<size_t>& order);
  void Attach();
  void Detach();

  // From the backward pass. Throw CollectiveError.
  void OnGradient(size_t index);
  void BeginPass();
  void QueueFinish();
  void PutGradient(size_t index);
  void LaunchReady();
  void FinishPass();
  // Parts of FinishPass.
  void AddUnused();
  std::vector<int64_t> CountGradients();
  void WaitForBuckets();
  void TakeGradients(const std::vector<int64_t>& counts);
  void RebuildBuckets();
  [[noreturn]] void Fail(const absl::Status& status);
};

void DistributedModule::State::BuildBuckets(const std::vector<size_t>& order) {
  std::vector<at::Tensor> tensors;
  for (const Parameter& parameter : parameters) {
    tensors.push_back(parameter.tensor);
  }
  buckets.clear();
  stats.bytes_per_pass = 0;
  for (std::vector<size_t>& indices :
       internal::AssignBuckets(tensors, order, options)) {
    std::vector<at::Tensor> gradients;
    for (size_t slot = 0; slot < indices.size(); ++slot) {
      parameters[indices[slot]].bucket = buckets.size();
      parameters[indices[slot]].slot = slot;
      gradients.push_back(tensors[indices[slot]]);
    }
    buckets.push_back({.gradients = GradientBucket(
                           gradients, options.compression, group->world_size()),
                       .parameters = std::move(indices)});
    stats.bytes_per_pass += buckets.back().gradients.bytes();
  }
  stats.num_buckets = static_cast<int>(buckets.size());
}

void DistributedModule::State::Attach() {
  using Variables = torch::autograd::variable_list;
  for (size_t i = 0; i < parameters.size(); ++i) {
    Parameter& parameter = parameters[i];
    parameter.accumulator =
        torch::autograd::impl::grad_accumulator(parameter.tensor);
    // Runs after the gradient was added to the parameter's.
    parameter.hook = parameter.accumulator->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [weak = weak_from_this(), i](const Variables& outputs,
                                         const Variables&) {
              if (const auto state = weak.lock()) state->OnGradient(i);
              return outputs;
            }));
  }
}

void DistributedModule::State::Detach() {
  for (Parameter& parameter : parameters) {
    if (parameter.accumulator == nullptr) continue;
    parameter.accumulator->del_post_hook(parameter.hook);
    parameter.accumulator = nullptr;
  }
}

void DistributedModule::State::Fail(const absl::Status& status) {
  in_pass = false;
  // The others wait for what this rank does not send.
  group->Abort(status);
  throw CollectiveError(status);
}

void DistributedModule::State::OnGradient(size_t index) {
  if (!parameters[index].tensor.requires_grad()) {
    Fail(absl::FailedPreconditionError(absl::StrCat(
        "requires_grad of parameter ", parameters[index].name,
        " was switched off between forward and backward; switch it off before "
        "the forward pass")));
  }
  parameters[index].touched = true;
  if (no_sync > 0) return;
  const at::NoGradGuard no_grad;
  if (!in_pass) {
    BeginPass();
    QueueFinish();
  }
  PutGradient(index);
  if (!rebuilt) arrivals.push_back(index);
  LaunchReady();
}

void DistributedModule::State::BeginPass() {
  const absl::Status status = group->status();
  if (!status.ok()) {
    throw CollectiveError(
        Annotate(status, absl::StrCat("rank ", group->rank(), ": backward")));
  }
  for (const auto& [name, tensor] : frozen) {
    if (!tensor.requires_grad()) continue;
    Fail(absl::FailedPreconditionError(absl::StrCat(
        "parameter ", name,
        " requires a gradient, but did not when the DistributedModule was "
        "made, so it would not be averaged; make a new one")));
  }
  for (Bucket& bucket : buckets) bucket.pending = 0;
  for (Parameter& parameter : parameters) {
    parameter.ready = false;
    if (parameter.tensor.requires_grad()) ++buckets[parameter.bucket].pending;
  }
  arrivals.clear();
  next_bucket = 0;
  in_pass = true;
}

void DistributedModule::State::QueueFinish() {
  torch::autograd::Engine::get_default_engine().queue_callback(
      [weak = weak_from_this()] {
        if (const auto state = weak.lock()) state->FinishPass();
      });
}

void DistributedModule::State::PutGradient(size_t index) {
  Parameter& parameter = parameters[index];
  const at::Tensor gradient = shadow ? at::Tensor() : parameter.tensor.grad();
  if (parameter.ready) {
    Fail(absl::FailedPreconditionError(absl::StrCat(
        "parameter ", parameter.name,
        " got a second gradient in one backward pass; or the pass before was "
        "left by an exception, after which the group cannot be used")));
  }
  if (gradient.defined() && gradient.layout() != at::kStrided) {
    Fail(absl::InvalidArgumentError(absl::StrCat(
        "the gradient of parameter ", parameter.name,
        " is sparse; only dense ones can be averaged (sparse = false)")));
  }
  parameter.ready = true;
  Bucket& bucket = buckets[parameter.bucket];
  bucket.gradients.Put(parameter.slot, gradient);
  --bucket.pending;
}

// In the order of the buckets, which is the same in all ranks.
void DistributedModule::State::LaunchReady() {
  try {
    while (next_bucket < buckets.size() && buckets[next_bucket].pending == 0) {
      buckets[next_bucket].gradients.Launch(*backend);
      ++next_bucket;
    }
  } catch (const std::exception& error) {
    Fail(group->FailureOf("sending gradients", error));
  }
}

void DistributedModule::State::FinishPass() {
  if (!in_pass) return;
  const at::NoGradGuard no_grad;
  AddUnused();
  LaunchReady();
  const std::vector<int64_t> counts = options.allow_unused_parameters
                                          ? CountGradients()
                                          : std::vector<int64_t>();
  WaitForBuckets();
  TakeGradients(counts);
  ++stats.num_reductions;
  if (!rebuilt) RebuildBuckets();
  if (options.broadcast_buffers_every > 0 && !buffers.empty() &&
      stats.num_reductions % options.broadcast_buffers_every == 0) {
    const absl::Status status = group->Broadcast(buffers);
    if (!status.ok()) Fail(Annotate(status, "buffers"));
  }
  in_pass = false;
}

// What a parameter that this pass left out has from passes before counts too.
void DistributedModule::State::AddUnused() {
  std::vector<std::string> unused;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    if (parameter.ready || !parameter.tensor.requires_grad()) continue;
    if (!parameter.touched && !shadow) unused.push_back(parameter.name);
    PutGradient(i);
  }
  if (unused.empty() || options.allow_unused_parameters) return;
  Fail(absl::FailedPreconditionError(absl::StrCat(
      "rank ", group->rank(), ": the backward pass left out ", Names(unused),
      "; if that is meant, set allow_unused_parameters, or requires_grad off "
      "for what does not train")));
}

// In how many ranks each parameter has a gradient.
std::vector<int64_t> DistributedModule::State::CountGradients() {
  at::Tensor counts =
      at::zeros({static_cast<int64_t>(parameters.size())}, at::kLong);
  auto* mine = counts.data_ptr<int64_t>();
  for (size_t i = 0; i < parameters.size(); ++i) {
    mine[i] = !shadow && parameters[i].tensor.grad().defined() ? 1 : 0;
  }
  const absl::Status status = group->AllReduce(counts);
  if (!status.ok()) Fail(Annotate(status, "used parameters"));
  return std::vector<int64_t>(mine, mine + parameters.size());
}

void DistributedModule::State::WaitForBuckets() {
  const absl::Time start = absl::Now();
  try {
    for (Bucket& bucket : buckets) {
      bucket.gradients.Continue(*backend);
    }
    for (Bucket& bucket : buckets) bucket.gradients.Finish();
  } catch (const std::exception& error) {
    Fail(group->FailureOf("averaging gradients", error));
  }
  stats.waited += absl::Now() - start;
}

void DistributedModule::State::TakeGradients(
    const std::vector<int64_t>& counts) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    Parameter& parameter = parameters[i];
    parameter.touched = false;
    if (!parameter.tensor.requires_grad()) continue;
    const at::Tensor mean =
        buckets[parameter.bucket].gradients.Get(parameter.slot);
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (gradient.defined()) {
      gradient.copy_(mean);
    } else if (counts.empty() || counts[i] > 0) {
      // Another rank has one. In the parameter's own layout.
      gradient = at::empty_like(parameter.tensor).copy_(mean);
    }
  }
}

// After the first pass that had all gradients: in the order in which rank 0 got
// them, so that buckets are full as early as can be.
void DistributedModule::State::RebuildBuckets() {
  // Every rank comes here after its first pass, so all of them decide alike.
  rebuilt = true;
  std::vector<size_t> order = arrivals;
  std::vector<bool> seen(parameters.size(), false);
  for (const size_t index : order) seen[index] = true;
  for (size_t i = parameters.size(); i-- > 0;) {
    if (!seen[i]) order.push_back(i);
  }
  at::Tensor shared =
      at::empty({static_cast<int64_t>(order.size())}, at::kLong);
  auto* indices = shared.data_ptr<int64_t>();
  std::copy(order.begin(), order.end(), indices);
  const absl::Status status = group->Broadcast(shared);
  if (!status.ok()) Fail(Annotate(status, "order of gradients"));
  std::copy(indices, indices + order.size(), order.begin());
  BuildBuckets(order);
}

absl::StatusOr<std::unique_ptr<DistributedModule>> DistributedModule::Create(
    std::shared_ptr<ProcessGroup> group, torch::nn::Module& module,
    DistributedOptions options) {
  auto state = std::make_shared<State>();
  state->group = group;
  state->options = options;
  Description description = {
      {"option first_bucket_bytes", absl::StrCat(options.first_bucket_bytes)},
      {"option bucket_bytes", absl::StrCat(options.bucket_bytes)},
      {"option allow_unused_parameters",
       options.allow_unused_parameters ? "true" : "false"},
      {"option broadcast_buffers_every",
       absl::StrCat(options.broadcast_buffers_every)},
      {"option compression",
       absl::StrCat(static_cast<int>(options.compression))}};
  absl::Status problem = Check(options);
  std::set<const void*> seen;
  std::vector<at::Tensor> all;
  auto add = [&](absl::string_view kind, const std::string& name,
                 const at::Tensor& tensor, bool trained) {
    description.emplace_back(
        absl::StrCat(kind, " '", name, "'"),
        absl::StrCat(Describe(tensor), trained ? " that trains" : ""));
    if (problem.ok() && (!(tensor.is_cpu() || tensor.is_cuda()) ||
                         tensor.layout() != at::kStrided)) {
      problem = absl::InvalidArgumentError(
          absl::StrCat(kind, " '", name,
                       "' is not a dense tensor on the CPU or a CUDA device"));
    }
    if (!all.empty() && problem.ok() &&
        tensor.device() != all.front().device()) {
      problem = absl::InvalidArgumentError(absl::StrCat(
          kind, " '", name, "' is on ", tensor.device().str(), ", others on ",
          all.front().device().str(), "; a module must be on one device"));
    }
    if (problem.ok() && trained && !at::isFloatingType(tensor.scalar_type())) {
      problem = absl::InvalidArgumentError(absl::StrCat(
          kind, " '", name, "' is ", at::toString(tensor.scalar_type()),
          "; only gradients of floating-point types are averaged"));
    }
    all.push_back(tensor);
  };
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& tensor = item.value();
    // Tied weights have several names, and one gradient.
    if (!tensor.defined() ||
        !seen.insert(tensor.unsafeGetTensorImpl()).second) {
      continue;
    }
    add("parameter", item.key(), tensor, tensor.requires_grad());
    if (tensor.requires_grad()) {
      state->parameters.push_back({.name = item.key(), .tensor = tensor});
    } else {
      state->frozen.emplace_back(item.key(), tensor);
    }
  }
  for (const auto& item : module.named_buffers()) {
    if (!item.value().defined() ||
        !seen.insert(item.value().unsafeGetTensorImpl()).second) {
      continue;
    }
    add("buffer", item.key(), item.value(), false);
    state->buffers.push_back(item.value());
  }
  // A rank with a problem tells the others: they must not wait for it.
  MR_RETURN_IF_ERROR(internal::CheckAlike(*group, problem, description));
  MR_RETURN_IF_ERROR(group->Broadcast(all));
  MR_ASSIGN_OR_RETURN(state->backend,
                      group->BackendFor(all.empty() ? c10::Device(c10::kCPU)
                                                    : all.front().device()));
  // The last layers' gradients come first.
  std::vector<size_t> order;
  for (size_t i = state->parameters.size(); i-- > 0;) order.push_back(i);
  state->BuildBuckets(order);
  state->Attach();
  return std::unique_ptr<DistributedModule>(
      new DistributedModule(std::move(state)));
}

DistributedModule::DistributedModule(std::shared_ptr<State> state)
    : state_(std::move(state)) {}

DistributedModule::~DistributedModule() {
  state_->Detach();
  if (state_->in_pass) {
    state_->group->Abort(absl::AbortedError(
        absl::StrCat("rank ", state_->group->rank(),
                     " left a backward pass before its end (an exception?)")));
  }
}

DistributedModule::NoSync::NoSync(DistributedModule& module) : module_(module) {
  ++module_.state_->no_sync;
}

DistributedModule::NoSync::~NoSync() { --module_.state_->no_sync; }

absl::Status DistributedModule::ShadowBackward() {
  state_->shadow = true;
  absl::Status status;
  try {
    state_->BeginPass();
    state_->FinishPass();
  } catch (const CollectiveError& error) {
    status = error.status();
  }
  state_->shadow = false;
  return status;
}

absl::Status DistributedModule::BroadcastBuffers() {
  return state_->group->Broadcast(state_->buffers);
}

absl::Status DistributedModule::CheckHooks() const {
  for (const Parameter& parameter : state_->parameters) {
    if (torch::autograd::impl::try_get_grad_accumulator(parameter.tensor) ==
        parameter.accumulator) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "the gradients of '", parameter.name,
        "' are not averaged any more: something has replaced its data, as "
        "torch::load and to() do; load and convert the module before it is "
        "distributed, or load it with LoadTraining, which leaves the hooks "
        "alone (a train function's RestoreFrom does)"));
  }
  return absl::OkStatus();
}

DistributedModule::Stats DistributedModule::stats() const {
  return state_->stats;
}

}  // namespace miniray::train
