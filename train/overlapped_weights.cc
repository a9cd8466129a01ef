#include "train/overlapped_weights.h"

#include <cstddef>
#include <string>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ps/tensor_info.h"
#include "runtime/base/copy.h"
#include "runtime/base/status_macros.h"
#include "runtime/tensor/shared_tensors.h"

namespace miniray::train {
namespace {

// Copies all of `from` into `to`, tensors of the same form.
void CopyAll(const NamedTensors& from, const NamedTensors& to) {
  for (size_t i = 0; i < from.size(); ++i) {
    const at::Tensor source = from[i].second.contiguous();
    CopyLarge(to[i].second.data_ptr(), source.data_ptr(), source.nbytes());
  }
}

std::string Describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return absl::StrCat(at::toString(tensor.scalar_type()), " [",
                      absl::StrJoin(tensor.sizes(), ", "), "]");
}

absl::Status CheckFits(const NamedTensors& weights,
                       const NamedTensors& snapshot) {
  if (weights.size() != snapshot.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weights are ", weights.size(), " tensors, and the ",
                     "snapshot that they came for ", snapshot.size()));
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const auto& [name, tensor] = weights[i];
    const auto& [expected_name, expected] = snapshot[i];
    if (name == expected_name && tensor.defined() &&
        tensor.sizes() == expected.sizes() &&
        tensor.scalar_type() == expected.scalar_type()) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", i, " is '", name, "' ", Describe(tensor),
        " in the weights, but '", expected_name, "' ", Describe(expected),
        " in the snapshot that they came "
        "for"));
  }
  return absl::OkStatus();
}

// Whether a step of training moves it by a difference that may be kept.
bool IsTrained(const std::string& name, const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kBool) return false;
  const bool is_float = tensor.is_floating_point() || tensor.is_complex();
  return !is_float || !ps::IsBufferName(name);
}

}  // namespace

OverlappedWeights::OverlappedWeights(
    std::function<ReadOnly<NamedTensors>()> lend,
    std::function<absl::Status(const NamedTensors&)> load)
    : lend_(std::move(lend)), load_(std::move(load)) {}

absl::Status OverlappedWeights::Snapshot() {
  const absl::MutexLock lock(&mu_);
  if (is_out_) {
    // What it leaves in snapshot_ is what the model has now.
    MR_RETURN_IF_ERROR(ApplyReceived(/*trained=*/true));
  } else {
    const ReadOnly<NamedTensors> now = lend_();
    if (snapshot_.empty()) snapshot_ = EmptySharedTensors(now.value);
    CopyAll(now.value, snapshot_);
  }
  is_out_ = true;
  return absl::OkStatus();
}

absl::Status OverlappedWeights::Apply(bool trained) {
  const absl::MutexLock lock(&mu_);
  return is_out_ ? ApplyReceived(trained) : absl::OkStatus();
}

absl::Status OverlappedWeights::ApplyReceived(bool trained) {
  if (!has_received_) {
    return absl::FailedPreconditionError(
        "nothing has come yet of the synchronisation that the last snapshot "
        "was taken for");
  }
  if (trained) {
    const at::NoGradGuard no_grad;
    const ReadOnly<NamedTensors> now = lend_();
    for (size_t i = 0; i < snapshot_.size(); ++i) {
      auto& [name, tensor] = snapshot_[i];
      const at::Tensor& received = received_[i].second;
      if (IsTrained(name, tensor)) {
        tensor.neg_().add_(received).add_(now.value[i].second);
      } else {
        tensor.copy_(received);
      }
    }
    MR_RETURN_IF_ERROR(load_(snapshot_));
  } else {
    MR_RETURN_IF_ERROR(load_(received_));
  }
  is_out_ = has_received_ = false;
  return absl::OkStatus();
}

ReadOnly<NamedTensors> OverlappedWeights::Lend() {
  const absl::MutexLock lock(&mu_);
  if (is_out_) return {snapshot_};
  return lend_();
}

absl::Status OverlappedWeights::Receive(const NamedTensors& weights) {
  const absl::MutexLock lock(&mu_);
  if (!is_out_) return load_(weights);
  MR_RETURN_IF_ERROR(CheckFits(weights, snapshot_));
  if (received_.empty()) {
    for (const auto& [name, tensor] : snapshot_) {
      received_.emplace_back(name, tensor.clone());
    }
  }
  CopyAll(weights, received_);
  has_received_ = true;
  return absl::OkStatus();
}

}  // namespace miniray::train
