#include "train/collective/nccl_backend.h"

#include <stdexcept>
#include <utility>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "c10/core/DeviceGuard.h"
#include "c10/core/Event.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "c10/util/Exception.h"
#include "train/libtorch_compat.h"

namespace miniray::train::internal {
namespace {

// A waiting thread looks this often: an all-reduce takes as long at least.
constexpr absl::Duration kPoll = absl::Microseconds(20);

c10::impl::VirtualGuardImpl Gpu() {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA);
}

NcclLibrary::Type TypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kHalf:
      return NcclLibrary::kFloat16;
    case at::kFloat:
      return NcclLibrary::kFloat32;
    case at::kDouble:
      return NcclLibrary::kFloat64;
    case at::kChar:
      return NcclLibrary::kInt8;
    case at::kByte:
      return NcclLibrary::kUint8;
    case at::kInt:
      return NcclLibrary::kInt32;
    case at::kLong:
      return NcclLibrary::kInt64;
    default:
      TORCH_CHECK(false, "NCCL reduces no ", tensor.scalar_type(), " here");
  }
}

NcclLibrary::Reduction ReductionOf(ReduceOp op) {
  if (op == ReduceOp::kMin) return NcclLibrary::kMin;
  if (op == ReduceOp::kMax) return NcclLibrary::kMax;
  return NcclLibrary::kSum;
}

}  // namespace

class NcclBackend::Started : public Work {
 public:
  Started(const NcclBackend& backend, at::Tensor output, at::Tensor input)
      : backend_(backend),
        output_(std::move(output)),
        input_(std::move(input)),
        done_(c10::DeviceType::CUDA) {
    done_.record(backend_.stream_);
  }

  void Wait() override {
    const absl::Time deadline = absl::Now() + backend_.options_.timeout;
    while (!done_.query()) {
      backend_.CheckHealth();
      if (absl::Now() > deadline) {
        throw std::runtime_error(absl::StrCat(
            "timed out after ", absl::FormatDuration(backend_.options_.timeout),
            " in a collective over NCCL"));
      }
      absl::SleepFor(kPoll);
    }
    done_.block(Gpu().getStream(backend_.options_.device));
  }

 private:
  const NcclBackend& backend_;
  const at::Tensor output_;
  const at::Tensor input_;
  c10::Event done_;
};

NcclBackend::NcclBackend(const Options& options, const NcclLibrary& nccl,
                         const NcclLibrary::UniqueId& id)
    : options_(options),
      nccl_(nccl),
      stream_(Gpu().getStreamFromGlobalPool(options.device)) {
  const c10::DeviceGuard guard(options_.device);
  Check(nccl_.comm_init_rank(&communicator_, options_.world_size, id,
                             options_.rank));
}

NcclBackend::~NcclBackend() {
  if (communicator_ == nullptr) return;
  const c10::DeviceGuard guard(options_.device);
  const absl::MutexLock lock(&mu_);
  if (aborted_.empty()) nccl_.comm_destroy(communicator_);
}

void NcclBackend::Check(NcclLibrary::Result result) const {
  if (result == NcclLibrary::kSuccess || result == NcclLibrary::kInProgress) {
    return;
  }
  const char* const cause =
      nccl_.get_last_error == nullptr ? nullptr : nccl_.get_last_error(nullptr);
  throw std::runtime_error(absl::StrCat(
      "NCCL: ", nccl_.get_error_string(result),
      cause == nullptr || *cause == '\0' ? "" : absl::StrCat(" (", cause, ")"),
      "; MINIRAY_NCCL=off averages through the CPU's memory instead"));
}

void NcclBackend::CheckHealth() const {
  const absl::MutexLock lock(&mu_);
  // Abort has freed the communicator.
  if (!aborted_.empty()) throw std::runtime_error(aborted_);
  NcclLibrary::Result result = NcclLibrary::kSuccess;
  Check(nccl_.comm_get_async_error(communicator_, &result));
  Check(result);
}

void NcclBackend::Abort(const std::string& message) {
  const absl::MutexLock lock(&mu_);
  if (!aborted_.empty()) return;
  aborted_ = message.empty() ? "aborted" : message;
  // Ends its kernels, which wait for other ranks, and frees it.
  nccl_.comm_abort(communicator_);
}

template <class Start>
std::unique_ptr<Work> NcclBackend::Launch(const at::Tensor& output,
                                          const at::Tensor& input,
                                          const Start& start) {
  TORCH_CHECK(
      output.device() == options_.device && input.device() == options_.device,
      "this process's GPU is ", options_.device, ", and a tensor is on ",
      output.device());
  const c10::DeviceGuard guard(options_.device);
  c10::Event ready(c10::DeviceType::CUDA);
  ready.record(Gpu().getStream(options_.device));
  ready.block(stream_);
  {
    const absl::MutexLock lock(&mu_);
    if (!aborted_.empty()) throw std::runtime_error(aborted_);
    Check(start(compat::NativeHandle(stream_)));
  }
  return std::make_unique<Started>(*this, output, input);
}

std::unique_ptr<Work> NcclBackend::AllReduce(const at::Tensor& tensor,
                                             ReduceOp op) {
  const NcclLibrary::Type type = TypeOf(tensor);
  return Launch(tensor, tensor, [&](NcclLibrary::Stream stream) {
    return nccl_.all_reduce(tensor.data_ptr(), tensor.data_ptr(),
                            static_cast<size_t>(tensor.numel()), type,
                            ReductionOf(op), communicator_, stream);
  });
}

std::unique_ptr<Work> NcclBackend::Broadcast(const at::Tensor& tensor,
                                             int root) {
  return Launch(tensor, tensor, [&](NcclLibrary::Stream stream) {
    return nccl_.broadcast(tensor.data_ptr(), tensor.data_ptr(),
                           tensor.nbytes(), NcclLibrary::kUint8, root,
                           communicator_, stream);
  });
}

std::unique_ptr<Work> NcclBackend::AllGather(const at::Tensor& output,
                                             const at::Tensor& input) {
  return Launch(output, input, [&](NcclLibrary::Stream stream) {
    return nccl_.all_gather(input.data_ptr(), output.data_ptr(), input.nbytes(),
                            NcclLibrary::kUint8, communicator_, stream);
  });
}

std::unique_ptr<Work> NcclBackend::AllToAll(const at::Tensor& output,
                                            const at::Tensor& input) {
  return Launch(output, input, [&](NcclLibrary::Stream stream) {
    const size_t piece = input.nbytes() / options_.world_size;
    NcclLibrary::Result result = nccl_.group_start();
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const char* const sent =
          static_cast<const char*>(input.data_ptr()) + rank * piece;
      char* const got = static_cast<char*>(output.data_ptr()) + rank * piece;
      if (result == NcclLibrary::kSuccess) {
        result = nccl_.send(sent, piece, NcclLibrary::kUint8, rank,
                            communicator_, stream);
      }
      if (result == NcclLibrary::kSuccess) {
        result = nccl_.receive(got, piece, NcclLibrary::kUint8, rank,
                               communicator_, stream);
      }
    }
    const NcclLibrary::Result end = nccl_.group_end();
    return result == NcclLibrary::kSuccess ? end : result;
  });
}

}  // namespace miniray::train::internal
