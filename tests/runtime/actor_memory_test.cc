// What an actor's process keeps of the memory that its methods free.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

constexpr int64_t kBlocks = 12;

class Trainer {
 public:
  // Takes kBlocks of `bytes` each, writes to all and frees them, as a training
  // step does. Returns this thread's page faults.
  int64_t Step(int64_t bytes) {
    const int64_t before = Faults();
    std::vector<std::unique_ptr<char[]>> taken;
    for (int64_t i = 0; i < kBlocks; ++i) {
      // Not set to 0: malloc's as it comes.
      taken.emplace_back(new char[static_cast<size_t>(bytes)]);
      std::fill_n(taken.back().get(), bytes, static_cast<char>(i));
    }
    taken.clear();
    return Faults() - before;
  }
  int64_t Pid() { return getpid(); }
  // What a process that it starts would have.
  std::string MallocSettings() {
    const char* const value = std::getenv("GLIBC_TUNABLES");
    return value == nullptr ? "" : value;
  }

 private:
  static int64_t Faults() {
    rusage usage = {};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
  }
};
MINIRAY_ACTOR(Trainer, Constructor<>, &Trainer::Step, &Trainer::Pid,
              &Trainer::MallocSettings);

TEST(ActorMemoryTest, WhatItStartsHasMallocAsEver) {
  constexpr char kOwn[] = "glibc.malloc.arena_max=2";
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto trainer = driver.CreateActor<Trainer>({});
  EXPECT_EQ(*trainer->Call<&Trainer::MallocSettings>().Get(), "");
  auto own = driver.CreateActor<Trainer>({.env = {{"GLIBC_TUNABLES", kOwn}}});
  EXPECT_EQ(*own->Call<&Trainer::MallocSettings>().Get(), kOwn);
}

// The sanitizers have mallocs of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

int64_t ResidentBytes(int64_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(ActorMemoryTest, WhatAStepFreesIsThereForTheNext) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto trainer = driver.CreateActor<Trainer>({});
  for (const int64_t mib : {8, 31}) {
    const int64_t of_first = *trainer->Call<&Trainer::Step>(mib << 20).Get();
    EXPECT_GE(of_first, kBlocks) << mib;  // Huge pages: 4 a block.
    EXPECT_LT(*trainer->Call<&Trainer::Step>(mib << 20).Get(), of_first / 4)
        << mib << "; the first: " << of_first;
  }
}

TEST(ActorMemoryTest, AnIdleProcessGivesItBack) {
  constexpr int64_t kStep = kBlocks * (31 << 20);
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto trainer = driver.CreateActor<Trainer>({});
  const int64_t pid = *trainer->Call<&Trainer::Pid>().Get();
  ASSERT_TRUE(trainer->Call<&Trainer::Step>(31 << 20).Get().ok());
  EXPECT_GE(ResidentBytes(pid), kStep);
  EXPECT_TRUE(Eventually([&] { return ResidentBytes(pid) < kStep / 2; },
                         absl::Minutes(1)));
  EXPECT_GT(ResidentBytes(pid), 0);  // It lives.
  EXPECT_GT(*trainer->Call<&Trainer::Step>(31 << 20).Get(), kBlocks);
}

#endif

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
