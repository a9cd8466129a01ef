#include "runtime/worker/gpu_meter.h"

#include <dlfcn.h>
#include <glog/logging.h>

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kFake[] = "tests/runtime/worker/libfake_nvml.so";
constexpr absl::Duration kLong = absl::Seconds(30);

// Of fake_nvml.cc; it stays loaded, with what it is told.
template <class Function>
Function* Fake(const char* name) {
  void* const library = dlopen(kFake, RTLD_NOW);
  CHECK(library != nullptr) << dlerror();
  void* const function = dlsym(library, name);
  CHECK(function != nullptr) << dlerror();
  return reinterpret_cast<Function*>(function);
}

void SetFakeNvml(int percent) { Fake<void(int)>("SetFakeNvml")(percent); }
void HangFakeNvml(bool hang) { Fake<void(bool)>("HangFakeNvml")(hang); }
int FakeNvmlWaiting() { return Fake<int()>("FakeNvmlWaiting")(); }

// Reads until `wanted` holds; what was read then, or last.
template <class Wanted>
std::vector<MeasuredGpu> ReadUntil(const GpuMeter& meter, Wanted wanted) {
  const absl::Time deadline = absl::Now() + kLong;
  std::vector<MeasuredGpu> gpus = meter.Read();
  while (!wanted(gpus) && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
    gpus = meter.Read();
  }
  return gpus;
}

bool Any(const std::vector<MeasuredGpu>& gpus) { return !gpus.empty(); }

TEST(GpuMeterTest, WhatTheDriverTells) {
  SetFakeNvml(37);
  const GpuMeter meter({.library = kFake});
  const std::vector<MeasuredGpu> gpus = ReadUntil(meter, Any);
  // One has failed.
  ASSERT_THAT(gpus, SizeIs(2));
  EXPECT_EQ(gpus[0].index, 0);
  EXPECT_EQ(gpus[0].usage.name(), "NVIDIA Test-0");
  EXPECT_EQ(gpus[0].usage.uuid(), "GPU-0");
  EXPECT_DOUBLE_EQ(gpus[0].usage.busy(), 0.37);
  EXPECT_EQ(gpus[0].usage.memory_used_bytes(), 300);
  EXPECT_EQ(gpus[0].usage.memory_total_bytes(), 1000);
  EXPECT_EQ(gpus[1].index, 2);  // As nvidia-smi shows it.
  EXPECT_EQ(gpus[1].usage.name(), "NVIDIA Test-2");
  EXPECT_FALSE(gpus[1].usage.has_busy());
  EXPECT_EQ(gpus[1].usage.memory_used_bytes(), 300);
}

TEST(GpuMeterTest, LooksAgainAndAgain) {
  SetFakeNvml(37);
  const GpuMeter meter({.library = kFake, .period = absl::Milliseconds(1)});
  ASSERT_THAT(ReadUntil(meter, Any), SizeIs(2));
  // More than there is, as drivers sometimes tell.
  SetFakeNvml(250);
  const auto gpus = ReadUntil(meter, [](const auto& told) {
    return !told.empty() && told[0].usage.busy() > 0.5;
  });
  ASSERT_THAT(gpus, SizeIs(2));
  EXPECT_EQ(gpus[0].usage.busy(), 1);
}

TEST(GpuMeterTest, WhatIsOldIsNotTold) {
  SetFakeNvml(37);
  const GpuMeter meter({.library = kFake,
                        .period = absl::Hours(1),
                        .max_age = absl::Milliseconds(300)});
  ASSERT_THAT(ReadUntil(meter, Any), SizeIs(2));
  EXPECT_THAT(ReadUntil(meter, [](const auto& told) { return told.empty(); }),
              IsEmpty());
}

// Ends at once, with a period of an hour, as the destructor does above.
TEST(GpuMeterTest, NothingWithoutALibraryOrADriver) {
  SetFakeNvml(-1);
  const GpuMeter none({.library = "libmissing.so"});
  const GpuMeter no_driver({.library = kFake});
  const GpuMeter other({.library = "libm.so.6"});
  EXPECT_THAT(none.Read(), IsEmpty());
  EXPECT_THAT(no_driver.Read(), IsEmpty());
  EXPECT_THAT(other.Read(), IsEmpty());
}

// As one whose GPU has failed: a daemon that ends does not wait for it.
TEST(GpuMeterTest, ADriverThatHangsIsLeftBehind) {
  SetFakeNvml(37);
  HangFakeNvml(true);
  const absl::Time deadline = absl::Now() + kLong;
  absl::Time ended;
  {
    const GpuMeter meter({.library = kFake});
    while (FakeNvmlWaiting() == 0 && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    ASSERT_EQ(FakeNvmlWaiting(), 1);
    EXPECT_THAT(meter.Read(), IsEmpty());
    ended = absl::Now();
  }
  EXPECT_LT(absl::Now() - ended, kLong);
  EXPECT_EQ(FakeNvmlWaiting(), 1) << "It was not left behind: it was let go.";
  // What it used is still there when the driver answers after all.
  HangFakeNvml(false);
  while (FakeNvmlWaiting() > 0 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(FakeNvmlWaiting(), 0);
}

}  // namespace
}  // namespace miniray
