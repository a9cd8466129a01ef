// The collectives of ProcessGroup.

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "ATen/ATen.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "train/collective/process_group.h"

namespace miniray::train {
namespace {

// Tensors of one broadcast travel together up to this size.
constexpr int64_t kPackedBytes = int64_t{16} << 20;

using Work = c10::intrusive_ptr<c10d::Work>;

// Runs one collective of c10d to its end.
absl::Status Run(ProcessGroup& group, absl::string_view what,
                 absl::FunctionRef<Work(c10d::ProcessGroup&)> start) {
  MR_RETURN_IF_ERROR(Annotate(group.status(),
                              absl::StrCat("rank ", group.rank(), ": ", what)));
  c10d::ProcessGroup* backend = group.backend();
  if (backend == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": the process group is not started"));
  }
  try {
    start(*backend)->wait();
  } catch (const std::exception& error) {
    return group.FailureOf(what, error);
  }
  return absl::OkStatus();
}

absl::Status CheckPlace(absl::string_view what, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": the tensor is undefined"));
  }
  if (!tensor.is_cpu() || tensor.layout() != at::kStrided) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": takes dense tensors on the CPU, not one of ",
                     tensor.toString()));
  }
  return absl::OkStatus();
}

bool IsSixteenBits(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16;
}

absl::Status CheckType(absl::string_view what, const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kHalf:
    case at::kFloat:
    case at::kDouble:
    case at::kChar:
    case at::kByte:
    case at::kInt:
    case at::kLong:
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": no collective of Gloo's takes ",
                       at::toString(tensor.scalar_type())));
  }
}

// The memory of a contiguous tensor, as bytes.
at::Tensor BytesOf(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(),
                       {static_cast<int64_t>(tensor.nbytes())}, at::kByte);
}

// Broadcasts tensors that travel as one, of `bytes` bytes together.
absl::Status BroadcastPacked(ProcessGroup& group,
                             const std::vector<at::Tensor>& tensors,
                             int64_t bytes, int root) {
  constexpr absl::string_view kWhat = "Broadcast";
  if (bytes == 0) return absl::OkStatus();
  c10d::BroadcastOptions options;
  options.rootRank = root;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : tensors) {
    parts.push_back(tensor.detach().contiguous());
  }
  at::Tensor packed = parts.size() == 1 ? BytesOf(parts.front())
                                        : at::empty({bytes}, at::kByte);
  auto for_each = [&](absl::FunctionRef<void(at::Tensor&, uint8_t*)> copy) {
    uint8_t* at = packed.data_ptr<uint8_t>();
    for (at::Tensor& part : parts) {
      copy(part, at);
      at += part.nbytes();
    }
  };
  if (parts.size() > 1 && group.rank() == root) {
    for_each([](at::Tensor& part, uint8_t* at) {
      std::memcpy(at, part.data_ptr(), part.nbytes());
    });
  }
  std::vector<at::Tensor> sent = {packed};
  MR_RETURN_IF_ERROR(Run(group, kWhat, [&](c10d::ProcessGroup& backend) {
    return backend.broadcast(sent, options);
  }));
  if (group.rank() == root) return absl::OkStatus();
  if (parts.size() > 1) {
    for_each([](at::Tensor& part, uint8_t* at) {
      std::memcpy(part.data_ptr(), at, part.nbytes());
    });
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].data_ptr() != tensors[i].data_ptr()) {
      tensors[i].detach().copy_(parts[i]);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ProcessGroup::Broadcast(const std::vector<at::Tensor>& tensors,
                                     int root) {
  if (root < 0 || root >= world_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Broadcast: root ", root, " of ", world_size(), " ranks is none"));
  }
  for (const at::Tensor& tensor : tensors) {
    MR_RETURN_IF_ERROR(CheckPlace("Broadcast", tensor));
  }
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> batch;
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    const auto size = static_cast<int64_t>(tensor.nbytes());
    if (!batch.empty() && bytes + size > kPackedBytes) {
      MR_RETURN_IF_ERROR(BroadcastPacked(*this, batch, bytes, root));
      batch.clear();
      bytes = 0;
    }
    batch.push_back(tensor);
    bytes += size;
  }
  return BroadcastPacked(*this, batch, bytes, root);
}

absl::Status ProcessGroup::Broadcast(const at::Tensor& tensor, int root) {
  return Broadcast(std::vector<at::Tensor>{tensor}, root);
}

absl::Status ProcessGroup::AllReduce(const at::Tensor& tensor, ReduceOp op) {
  constexpr absl::string_view kWhat = "AllReduce";
  MR_RETURN_IF_ERROR(CheckPlace(kWhat, tensor));
  const at::ScalarType type = tensor.scalar_type();
  if (!IsSixteenBits(type)) MR_RETURN_IF_ERROR(CheckType(kWhat, tensor));
  if (op == ReduceOp::kMean && !at::isFloatingType(type)) {
    return absl::InvalidArgumentError(
        absl::StrCat("AllReduce: a mean needs a floating-point type, not ",
                     at::toString(type)));
  }
  const at::NoGradGuard no_grad;
  at::Tensor sent = tensor.detach();
  if (IsSixteenBits(type)) sent = sent.to(at::kFloat);
  sent = sent.contiguous();
  c10d::AllreduceOptions options;
  switch (op) {
    case ReduceOp::kMin:
      options.reduceOp = c10d::ReduceOp::MIN;
      break;
    case ReduceOp::kMax:
      options.reduceOp = c10d::ReduceOp::MAX;
      break;
    default:
      options.reduceOp = c10d::ReduceOp::SUM;
  }
  std::vector<at::Tensor> tensors = {sent};
  MR_RETURN_IF_ERROR(Run(*this, kWhat, [&](c10d::ProcessGroup& backend) {
    return backend.allreduce(tensors, options);
  }));
  if (op == ReduceOp::kMean) sent.div_(world_size());
  if (sent.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(sent);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ProcessGroup::AllReduce(int64_t value, ReduceOp op) {
  const at::Tensor tensor = at::full({1}, value, at::kLong);
  MR_RETURN_IF_ERROR(AllReduce(tensor, op));
  return tensor.item<int64_t>();
}

absl::StatusOr<std::vector<at::Tensor>> ProcessGroup::AllGather(
    const at::Tensor& tensor) {
  constexpr absl::string_view kWhat = "AllGather";
  MR_RETURN_IF_ERROR(CheckPlace(kWhat, tensor));
  MR_RETURN_IF_ERROR(CheckType(kWhat, tensor));
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> inputs = {tensor.detach().contiguous()};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int i = 0; i < world_size(); ++i) {
    outputs.front().push_back(
        at::empty(tensor.sizes(), tensor.options().requires_grad(false)));
  }
  MR_RETURN_IF_ERROR(Run(*this, kWhat, [&](c10d::ProcessGroup& backend) {
    return backend.allgather(outputs, inputs);
  }));
  return std::move(outputs.front());
}

absl::StatusOr<std::vector<std::string>> ProcessGroup::AllGather(
    absl::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  MR_ASSIGN_OR_RETURN(const std::vector<at::Tensor> sizes,
                      AllGather(at::full({1}, size, at::kLong)));
  int64_t longest = 1;
  for (const at::Tensor& s : sizes) {
    longest = std::max(longest, s.item<int64_t>());
  }
  at::Tensor padded = at::zeros({longest}, at::kByte);
  if (size > 0) std::memcpy(padded.data_ptr(), bytes.data(), bytes.size());
  MR_ASSIGN_OR_RETURN(const std::vector<at::Tensor> all, AllGather(padded));
  std::vector<std::string> result;
  for (size_t i = 0; i < all.size(); ++i) {
    result.emplace_back(static_cast<const char*>(all[i].data_ptr()),
                        static_cast<size_t>(sizes[i].item<int64_t>()));
  }
  return result;
}

absl::Status ProcessGroup::Barrier() {
  return Run(*this, "Barrier",
             [](c10d::ProcessGroup& backend) { return backend.barrier(); });
}

}  // namespace miniray::train
