// What the GPUs of the machine are at, as NVIDIA's driver tells (NVML).

#ifndef MINIRAY_RUNTIME_WORKER_GPU_METER_H_
#define MINIRAY_RUNTIME_WORKER_GPU_METER_H_

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/head.pb.h"

namespace miniray {

// A GPU, and what it is at.
struct MeasuredGpu {
  int index = 0;  // The driver's, as nvidia-smi shows it.
  v1::GpuUsage usage;
};

// Looks from a thread of its own: a driver whose GPU has failed may not answer
// for minutes. Thread-safe.
class GpuMeter {
 public:
  struct Options {
    // Comes with the driver; where it is not there, there is nothing to tell.
    std::string library = "libnvidia-ml.so.1";
    absl::Duration period = absl::Seconds(2);
    // What is older is not told any more.
    absl::Duration max_age = absl::Seconds(10);
  };

  GpuMeter() : GpuMeter(Options()) {}
  explicit GpuMeter(Options options);
  // Waits a second at most for a look that goes on. A thread that the driver
  // does not let go is left behind, with all that it uses.
  ~GpuMeter();

  // All GPUs of the machine that answer, in the driver's order. Empty: there is
  // none, or nobody tells.
  std::vector<MeasuredGpu> Read() const;

 private:
  struct Shared {
    explicit Shared(Options options) : options(std::move(options)) {}

    const Options options;
    absl::Mutex mu;
    bool stop ABSL_GUARDED_BY(mu) = false;
    bool ended ABSL_GUARDED_BY(mu) = false;
    std::vector<MeasuredGpu> gpus ABSL_GUARDED_BY(mu);
    absl::Time read_at ABSL_GUARDED_BY(mu) = absl::InfinitePast();
  };

  static void Run(Shared& shared);

  const std::shared_ptr<Shared> shared_;  // With the thread.
  std::thread thread_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_GPU_METER_H_
