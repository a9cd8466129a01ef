#include "runtime/actor/idle_memory.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace miniray {
namespace internal {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(10);

class IdleMemoryTest : public testing::Test {
 protected:
  // Returns how often memory was given back so far.
  int LookAfter(absl::Duration used) {
    cpu_time_ += used;
    memory_.Look(kPeriod);
    return given_;
  }

 private:
  absl::Duration cpu_time_ = absl::Seconds(7);
  int given_ = 0;
  IdleMemory memory_ =
      IdleMemory([this] { return cpu_time_; }, [this] { ++given_; });
};

TEST_F(IdleMemoryTest, IsGivenBackOnceEachTimeThatTheWorkEnds) {
  for (int times = 1; times <= 3; ++times) {
    EXPECT_EQ(LookAfter(absl::Seconds(20)), times - 1);  // Two threads' work.
    EXPECT_EQ(LookAfter(absl::Seconds(1)), times - 1);
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(LookAfter(absl::Milliseconds(10)), times);
    }
  }
}

TEST_F(IdleMemoryTest, IsGivenBackIfThereWasNoWorkSinceTheStart) {
  EXPECT_EQ(LookAfter(absl::ZeroDuration()), 1);
  EXPECT_EQ(LookAfter(absl::ZeroDuration()), 1);
}

TEST(IdleMemoryClockTest, CountsThisProcess) {
  const absl::Duration start = IdleMemory::CpuTime();
  EXPECT_GT(start, absl::ZeroDuration());
  // Ends: time passes for who works.
  while (IdleMemory::CpuTime() - start < absl::Milliseconds(20)) {
  }
}

}  // namespace
}  // namespace internal
}  // namespace miniray
