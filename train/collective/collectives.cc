// The collectives of ProcessGroup.

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include "ATen/ATen.h"
#include "ATen/core/grad_mode.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "train/collective/backend.h"
#include "train/collective/process_group.h"

namespace miniray::train {
namespace {

// Tensors of one broadcast travel together up to this size.
constexpr int64_t kPackedBytes = int64_t{16} << 20;

// Runs one collective to its end.
absl::Status Run(
    ProcessGroup& group, absl::string_view what, c10::Device device,
    absl::FunctionRef<std::unique_ptr<internal::Work>(internal::Backend&)>
        start) {
  const absl::StatusOr<internal::Backend*> backend = group.BackendFor(device);
  if (!backend.ok()) {
    return Annotate(backend.status(),
                    absl::StrCat("rank ", group.rank(), ": ", what));
  }
  try {
    start(**backend)->Wait();
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
  if (!(tensor.is_cpu() || tensor.is_cuda()) ||
      tensor.layout() != at::kStrided) {
    return absl::InvalidArgumentError(
        absl::StrCat(what,
                     ": takes dense tensors on the CPU or a CUDA device, not "
                     "one of ",
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
  return tensor.view({-1}).view(at::kByte);
}

// Broadcasts tensors of one device that travel as one, of `bytes` bytes
// together.
absl::Status BroadcastPacked(ProcessGroup& group,
                             const std::vector<at::Tensor>& tensors,
                             int64_t bytes, int root) {
  if (bytes == 0) return absl::OkStatus();
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() > 0) parts.push_back(tensor.detach().contiguous());
  }
  const c10::Device device = parts.front().device();
  const bool is_packed = parts.size() > 1;
  const at::Tensor sent =
      is_packed ? at::empty({bytes}, at::dtype(at::kByte).device(device))
                : BytesOf(parts.front());
  auto for_each = [&](absl::FunctionRef<void(const at::Tensor& part,
                                             const at::Tensor& piece)>
                          copy) {
    int64_t offset = 0;
    for (const at::Tensor& part : parts) {
      const auto size = static_cast<int64_t>(part.nbytes());
      copy(BytesOf(part), sent.narrow(0, offset, size));
      offset += size;
    }
  };
  if (is_packed && group.rank() == root) {
    for_each([](const at::Tensor& part, const at::Tensor& piece) {
      piece.copy_(part);
    });
  }
  MR_RETURN_IF_ERROR(
      Run(group, "Broadcast", device, [&](internal::Backend& backend) {
        return backend.Broadcast(sent, root);
      }));
  if (group.rank() == root) return absl::OkStatus();
  if (is_packed) {
    for_each([](const at::Tensor& part, const at::Tensor& piece) {
      part.copy_(piece);
    });
  }
  size_t next = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    const at::Tensor& part = parts[next++];
    if (part.data_ptr() != tensor.data_ptr()) tensor.detach().copy_(part);
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
    if (!batch.empty() && (bytes + size > kPackedBytes ||
                           tensor.device() != batch.front().device())) {
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
  MR_RETURN_IF_ERROR(Run(
      *this, kWhat, sent.device(),
      [&](internal::Backend& backend) { return backend.AllReduce(sent, op); }));
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
  const at::Tensor sent = tensor.detach().contiguous();
  std::vector<int64_t> sizes = {world_size()};
  sizes.insert(sizes.end(), sent.sizes().begin(), sent.sizes().end());
  const at::Tensor all = at::empty(sizes, sent.options());
  MR_RETURN_IF_ERROR(
      Run(*this, kWhat, sent.device(), [&](internal::Backend& backend) {
        return backend.AllGather(all, sent);
      }));
  return all.unbind(0);
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
  const at::Tensor nothing = at::zeros({1}, at::kByte);
  return Run(*this, "Barrier", nothing.device(),
             [&](internal::Backend& backend) {
               return backend.AllReduce(nothing, ReduceOp::kSum);
             });
}

}  // namespace miniray::train
