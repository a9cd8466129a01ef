#include "runtime/base/memory_limit.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kMegabyte = 1 << 20;

int64_t MachineBytes() {
  return int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
}

// A folder that stands for a system's.
class MemoryLimitTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }
  void WriteLimit(const std::string& group, const std::string& limit) {
    Write("sys/fs/cgroup/" + group + "/memory.max", limit);
  }

  const TempFolder root_;
};

TEST_F(MemoryLimitTest, TheLeastLimitOfTheGroupsAboveHolds) {
  Write("proc/self/cgroup", "0::/pods/one/actors");
  const std::string groups = root_ / "sys/fs/cgroup/";
  EXPECT_THAT(ControlGroupFolders(root_.path()),
              ElementsAre(groups + "pods/one/actors", groups + "pods/one",
                          groups + "pods", groups));
  EXPECT_EQ(UsableMemoryBytes(root_.path()), MachineBytes());
  WriteLimit("pods/one/actors", "max");
  EXPECT_EQ(UsableMemoryBytes(root_.path()), MachineBytes());
  WriteLimit("pods", std::to_string(90 * kMegabyte));
  EXPECT_EQ(UsableMemoryBytes(root_.path()), 90 * kMegabyte);
  WriteLimit("pods/one/actors", std::to_string(70 * kMegabyte));
  EXPECT_EQ(UsableMemoryBytes(root_.path()), 70 * kMegabyte);
  // A neighbour's does not count.
  WriteLimit("pods/two", std::to_string(kMegabyte));
  EXPECT_EQ(UsableMemoryBytes(root_.path()), 70 * kMegabyte);
  // A container may see its own group as the root.
  WriteLimit("", std::to_string(50 * kMegabyte));
  EXPECT_EQ(UsableMemoryBytes(root_.path()), 50 * kMegabyte);
}

TEST_F(MemoryLimitTest, WithoutALimitItIsTheMachines) {
  EXPECT_THAT(ControlGroupFolders(root_.path()), IsEmpty());
  EXPECT_EQ(UsableMemoryBytes(root_.path()), MachineBytes());
  // More than there is, groups of another kind, nonsense.
  Write("proc/self/cgroup", "4:memory:/pods\n0::/");
  for (const char* limit : {"9223372036854771712", "0", "-5", "much", ""}) {
    WriteLimit("", limit);
    EXPECT_EQ(UsableMemoryBytes(root_.path()), MachineBytes()) << limit;
  }
}

TEST(UsableMemoryTest, IsSomeOfTheMachines) {
  EXPECT_GT(UsableMemoryBytes(), 0);
  EXPECT_LE(UsableMemoryBytes(), MachineBytes());
}

}  // namespace
}  // namespace miniray
