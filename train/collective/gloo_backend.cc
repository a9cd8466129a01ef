#include "train/collective/gloo_backend.h"

#include <exception>
#include <optional>
#include <utility>

#include "absl/synchronization/notification.h"
#include "c10/util/Exception.h"
#include "gloo/allgather.h"
#include "gloo/allreduce.h"
#include "gloo/alltoall.h"
#include "gloo/broadcast.h"
#include "gloo/math.h"
#include "gloo/types.h"
#include "train/collective/host_copy.h"

namespace miniray::train::internal {
namespace {

std::shared_ptr<gloo::rendezvous::Context> Connect(
    const GlooBackend::Options& options, gloo::rendezvous::Store& store,
    const std::shared_ptr<AbortableDevice>& device) {
  auto context = std::make_shared<gloo::rendezvous::Context>(
      options.rank, options.world_size);
  context->setTimeout(absl::ToChronoMilliseconds(options.timeout));
  std::shared_ptr<gloo::transport::Device> transport = device;
  context->connectFullMesh(store, transport);
  return context;
}

template <class T>
void ReduceAs(gloo::AllreduceOptions& options, const at::Tensor& tensor,
              ReduceOp op) {
  options.setOutput(static_cast<T*>(tensor.data_ptr()),
                    static_cast<size_t>(tensor.numel()));
  using Function = void (*)(void*, const void*, const void*, size_t);
  Function function = &gloo::sum<T>;
  if (op == ReduceOp::kMin) function = &gloo::min<T>;
  if (op == ReduceOp::kMax) function = &gloo::max<T>;
  options.setReduceFunction(function);
  gloo::allreduce(options);
}

void Reduce(gloo::AllreduceOptions& options, const at::Tensor& tensor,
            ReduceOp op) {
  switch (tensor.scalar_type()) {
    case at::kHalf:
      return ReduceAs<gloo::float16>(options, tensor, op);
    case at::kFloat:
      return ReduceAs<float>(options, tensor, op);
    case at::kDouble:
      return ReduceAs<double>(options, tensor, op);
    case at::kChar:
      return ReduceAs<int8_t>(options, tensor, op);
    case at::kByte:
      return ReduceAs<uint8_t>(options, tensor, op);
    case at::kInt:
      return ReduceAs<int32_t>(options, tensor, op);
    case at::kLong:
      return ReduceAs<int64_t>(options, tensor, op);
    default:
      TORCH_CHECK(false, "Gloo reduces no ", tensor.scalar_type());
  }
}

uint8_t* Bytes(const at::Tensor& tensor) {
  return static_cast<uint8_t*>(tensor.data_ptr());
}

}  // namespace

// One collective; the backend's threads have it too until it has run.
class GlooBackend::Job {
 public:
  Job(const at::Tensor& output, const at::Tensor& input, uint32_t tag, Run run)
      : input_(input, HostCopy::Contents::kCopied),
        tag_(tag),
        run_(std::move(run)) {
    if (!output.is_same(input)) {
      output_.emplace(output, HostCopy::Contents::kUndefined);
    }
  }

  void Execute() {
    try {
      input_.Await();
      run_(tag_, output().tensor(), input_.tensor());
    } catch (...) {
      error_ = std::current_exception();
    }
    done_.Notify();
  }

  void Wait() {
    done_.WaitForNotification();
    if (error_ != nullptr) std::rethrow_exception(error_);
    output().CopyBack();
  }

 private:
  const HostCopy& output() const {
    return output_.has_value() ? *output_ : input_;
  }

  const HostCopy input_;
  std::optional<HostCopy> output_;  // None: the input's.
  const uint32_t tag_;
  const Run run_;
  std::exception_ptr error_;  // Before done_.
  absl::Notification done_;
};

GlooBackend::GlooBackend(const Options& options, gloo::rendezvous::Store& store,
                         std::shared_ptr<AbortableDevice> device)
    : device_(std::move(device)), context_(Connect(options, store, device_)) {
  for (int i = 0; i < options.num_threads; ++i) {
    threads_.emplace_back([this] { RunJobs(); });
  }
}

GlooBackend::~GlooBackend() {
  {
    const absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void GlooBackend::RunJobs() {
  for (;;) {
    std::shared_ptr<Job> job;
    {
      const absl::MutexLock lock(&mu_);
      const auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return stopping_ || !jobs_.empty();
      };
      mu_.Await(absl::Condition(&something));
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job->Execute();
  }
}

std::unique_ptr<Work> GlooBackend::Start(const at::Tensor& output,
                                         const at::Tensor& input, Run run) {
  class Started : public Work {
   public:
    explicit Started(std::shared_ptr<Job> job) : job_(std::move(job)) {}
    void Wait() override { job_->Wait(); }

   private:
    const std::shared_ptr<Job> job_;
  };

  auto job = std::make_shared<Job>(output, input, next_tag_++, std::move(run));
  {
    const absl::MutexLock lock(&mu_);
    jobs_.push_back(job);
  }
  return std::make_unique<Started>(std::move(job));
}

std::unique_ptr<Work> GlooBackend::AllReduce(const at::Tensor& tensor,
                                             ReduceOp op) {
  return Start(
      tensor, tensor,
      [this, op](uint32_t tag, const at::Tensor& host, const at::Tensor&) {
        gloo::AllreduceOptions options(context_);
        options.setTag(tag);
        Reduce(options, host, op);
      });
}

std::unique_ptr<Work> GlooBackend::Broadcast(const at::Tensor& tensor,
                                             int root) {
  return Start(
      tensor, tensor,
      [this, root](uint32_t tag, const at::Tensor& host, const at::Tensor&) {
        gloo::BroadcastOptions options(context_);
        options.setTag(tag);
        options.setRoot(root);
        options.setOutput(Bytes(host), host.nbytes());
        gloo::broadcast(options);
      });
}

std::unique_ptr<Work> GlooBackend::AllGather(const at::Tensor& output,
                                             const at::Tensor& input) {
  return Start(
      output, input,
      [this](uint32_t tag, const at::Tensor& all, const at::Tensor& mine) {
        gloo::AllgatherOptions options(context_);
        options.setTag(tag);
        options.setInput(Bytes(mine), mine.nbytes());
        options.setOutput(Bytes(all), all.nbytes());
        gloo::allgather(options);
      });
}

std::unique_ptr<Work> GlooBackend::AllToAll(const at::Tensor& output,
                                            const at::Tensor& input) {
  return Start(
      output, input,
      [this](uint32_t tag, const at::Tensor& got, const at::Tensor& sent) {
        gloo::AlltoallOptions options(context_);
        options.setTag(tag);
        options.setInput(Bytes(sent), sent.nbytes());
        options.setOutput(Bytes(got), got.nbytes());
        gloo::alltoall(options);
      });
}

void GlooBackend::Abort(const std::string& message) { device_->Abort(message); }

}  // namespace miniray::train::internal
