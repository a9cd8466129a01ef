// What the GPUs of the machine are at, as NVIDIA's driver tells (NVML).

#ifndef MINIRAY_RUNTIME_WORKER_GPU_METER_H_
#define MINIRAY_RUNTIME_WORKER_GPU_METER_H_

#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/head.pb.h"

namespace miniray {

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
  // Waits for a look that goes on.
  ~GpuMeter();

  // All GPUs of the machine, in the driver's order. Empty: there is none, or
  // nobody tells.
  std::vector<v1::GpuUsage> Read() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  mutable absl::Mutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<v1::GpuUsage> gpus_ ABSL_GUARDED_BY(mu_);
  absl::Time read_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_GPU_METER_H_
