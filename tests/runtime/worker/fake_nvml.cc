// Stands for NVIDIA's library in tests: a machine with three GPUs, the second
// of which does not answer and the third of which does not tell how busy it is.
// SetFakeNvml says how many percent of the time the first one is; below 0, the
// machine has no driver. HangFakeNvml keeps the driver from answering until it
// is told otherwise; FakeNvmlWaiting is the number of calls that wait for that.

#include <atomic>
#include <cstdio>
#include <thread>

namespace {

constexpr int kSuccess = 0, kUninitialized = 1, kNotSupported = 3, kLost = 15;
int devices[3];
std::atomic<int> busy = -1;
std::atomic<int> users = 0;  // The library counts them, as NVML does.
std::atomic<bool> hangs = false;
std::atomic<int> waiting = 0;

int Copy(const char* from, void* device, char* text, unsigned int length) {
  std::snprintf(text, length, "%s-%d", from,
                static_cast<int>(static_cast<int*>(device) - devices));
  return kSuccess;
}

}  // namespace

extern "C" {

struct FakeMemory {
  unsigned long long total, free, used;
};
struct FakeUtilization {
  unsigned int gpu, memory;
};

void SetFakeNvml(int percent) { busy = percent; }
void HangFakeNvml(bool hang) { hangs = hang; }
int FakeNvmlWaiting() { return waiting; }

int nvmlInit_v2() {
  if (busy < 0) return kUninitialized;
  ++users;
  return kSuccess;
}
int nvmlShutdown() {
  --users;
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned int* count) {
  ++waiting;
  while (hangs) std::this_thread::yield();
  --waiting;
  *count = 3;
  return users > 0 ? kSuccess : kUninitialized;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  *device = &devices[index];
  return index == 1 ? kLost : kSuccess;
}
int nvmlDeviceGetName(void* device, char* text, unsigned int length) {
  return Copy("NVIDIA Test", device, text, length);
}
int nvmlDeviceGetUUID(void* device, char* text, unsigned int length) {
  return Copy("GPU", device, text, length);
}
int nvmlDeviceGetUtilizationRates(void* device, FakeUtilization* told) {
  if (device != &devices[0]) return kNotSupported;
  told->gpu = static_cast<unsigned int>(busy.load());
  told->memory = 1;
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(void*, FakeMemory* memory) {
  *memory = {.total = 1000, .free = 700, .used = 300};
  return kSuccess;
}

}  // extern "C"
