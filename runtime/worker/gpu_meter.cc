#include "runtime/worker/gpu_meter.h"

#include <dlfcn.h>
#include <glog/logging.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/utf8.h"

namespace miniray {
namespace {

// For a driver's answer, when nobody needs it any more.
constexpr absl::Duration kPatience = absl::Seconds(1);

// The driver's library, as far as it is used here (NVML API reference).
// Opened at run time: machines without a GPU do not have it.
class Nvml {
 public:
  // Null if it is not there, or knows no driver.
  static std::unique_ptr<Nvml> Open(const std::string& library) {
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return nullptr;
    std::unique_ptr<Nvml> nvml(new Nvml(handle));
    if (nvml->Find("nvmlInit_v2", &nvml->init_) &&
        nvml->Find("nvmlShutdown", &nvml->shutdown_) &&
        nvml->Find("nvmlDeviceGetCount_v2", &nvml->count_) &&
        nvml->Find("nvmlDeviceGetHandleByIndex_v2", &nvml->handle_by_index_) &&
        nvml->Find("nvmlDeviceGetName", &nvml->name_) &&
        nvml->Find("nvmlDeviceGetUUID", &nvml->uuid_) &&
        nvml->Find("nvmlDeviceGetUtilizationRates", &nvml->utilization_) &&
        nvml->Find("nvmlDeviceGetMemoryInfo", &nvml->memory_)) {
      const int code = nvml->init_();
      nvml->initialized_ = code == kSuccess;
      if (nvml->initialized_) return nvml;
      LOG(WARNING) << library << " finds no driver (error " << code
                   << "): what GPUs are at is not shown; see nvidia-smi";
      return nullptr;
    }
    LOG(WARNING) << library << " lacks what is asked of it (" << dlerror()
                 << "): what GPUs are at is not shown";
    return nullptr;
  }

  ~Nvml() {
    if (initialized_) shutdown_();
    dlclose(library_);
  }

  // Those that do not answer are left out.
  std::vector<MeasuredGpu> Look() const {
    std::vector<MeasuredGpu> gpus;
    unsigned int count = 0;
    if (count_(&count) != kSuccess) return gpus;
    for (unsigned int i = 0; i < std::min(count, kMaxGpus); ++i) {
      void* device = nullptr;
      Memory memory = {};
      if (handle_by_index_(i, &device) != kSuccess ||
          memory_(device, &memory) != kSuccess) {
        continue;
      }
      MeasuredGpu& measured = gpus.emplace_back();
      measured.index = static_cast<int>(i);
      v1::GpuUsage& gpu = measured.usage;
      gpu.set_memory_used_bytes(static_cast<int64_t>(memory.used));
      gpu.set_memory_total_bytes(static_cast<int64_t>(memory.total));
      gpu.set_name(TextOf(name_, device));
      gpu.set_uuid(TextOf(uuid_, device));
      Utilization utilization = {};
      if (utilization_(device, &utilization) == kSuccess) {
        gpu.set_busy(std::min(utilization.gpu, 100U) / 100.0);
      }
    }
    return gpus;
  }

 private:
  static constexpr int kSuccess = 0;
  static constexpr unsigned int kMaxGpus = 64;  // Of a machine.
  struct Memory {
    unsigned long long total, free, used;  // NOLINT(runtime/int): NVML's.
  };
  struct Utilization {
    unsigned int gpu, memory;  // In percent.
  };
  using Text = int (*)(void* device, char* text, unsigned int length);

  explicit Nvml(void* library) : library_(library) {}

  template <class Function>
  bool Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library_, name));
    return *function != nullptr;
  }

  static std::string TextOf(Text read, void* device) {
    char text[97] = {};
    if (read(device, text, sizeof(text) - 1) != kSuccess) return "";
    return ToUtf8(text);
  }

  void* const library_;
  bool initialized_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned int*) = nullptr;
  int (*handle_by_index_)(unsigned int, void**) = nullptr;
  Text name_ = nullptr;
  Text uuid_ = nullptr;
  int (*utilization_)(void*, Utilization*) = nullptr;
  int (*memory_)(void*, Memory*) = nullptr;
};

}  // namespace

GpuMeter::GpuMeter(Options options)
    : shared_(std::make_shared<Shared>(std::move(options))),
      thread_([shared = shared_] {
        Run(*shared);
        absl::MutexLock lock(&shared->mu);
        shared->ended = true;
      }) {}

GpuMeter::~GpuMeter() {
  bool ended = false;
  {
    absl::MutexLock lock(&shared_->mu);
    shared_->stop = true;
    ended = shared_->mu.AwaitWithTimeout(absl::Condition(&shared_->ended),
                                         kPatience);
  }
  if (ended) {
    thread_.join();
  } else {
    LOG(WARNING) << "The GPUs' driver does not answer ("
                 << shared_->options.library
                 << "); see nvidia-smi and the kernel's log";
    thread_.detach();
  }
}

std::vector<MeasuredGpu> GpuMeter::Read() const {
  absl::MutexLock lock(&shared_->mu);
  if (absl::Now() - shared_->read_at > shared_->options.max_age) return {};
  return shared_->gpus;
}

void GpuMeter::Run(Shared& shared) {
  const std::unique_ptr<Nvml> nvml = Nvml::Open(shared.options.library);
  if (nvml == nullptr) return;
  absl::MutexLock lock(&shared.mu);
  while (!shared.stop) {
    shared.mu.Unlock();
    std::vector<MeasuredGpu> gpus = nvml->Look();
    shared.mu.Lock();
    shared.gpus = std::move(gpus);
    shared.read_at = absl::Now();
    shared.mu.AwaitWithTimeout(absl::Condition(&shared.stop),
                               shared.options.period);
  }
}

}  // namespace miniray
