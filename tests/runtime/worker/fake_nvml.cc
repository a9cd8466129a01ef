// Stands for NVIDIA's library in tests: a machine with three GPUs, the second
// of which does not answer and the third of which does not tell how busy it is.
// SetFakeNvml says how many percent of the time the first one is; below 0, the
// machine has no driver.

#include <atomic>
#include <cstdio>

namespace {

constexpr int kSuccess = 0, kUninitialized = 1, kNotSupported = 3, kLost = 15;
int devices[3];
std::atomic<int> busy = -1;
std::atomic<bool> ready = false;

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

int nvmlInit_v2() {
  if (busy < 0) return kUninitialized;
  ready = true;
  return kSuccess;
}
int nvmlShutdown() {
  ready = false;
  return kSuccess;
}
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = 3;
  return ready ? kSuccess : kUninitialized;
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
