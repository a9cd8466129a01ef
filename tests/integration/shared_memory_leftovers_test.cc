// Whoever is killed while memory is shared, and whenever: none of it stays
// behind with a process that lives on, and none has a name by which it could
// stay without one.

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/real_cluster.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// What a process has open or mapped, as /proc names it, where that says `text`.
std::vector<std::string> Holds(pid_t pid, const char* text) {
  std::vector<std::string> found;
  const std::string proc = absl::StrCat("/proc/", pid);
  std::error_code error;
  for (fs::directory_iterator it(proc + "/fd", error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    const std::string target = fs::read_symlink(it->path(), gone);
    if (absl::StrContains(target, text)) found.push_back(target);
  }
  FILE* const maps = fopen((proc + "/maps").c_str(), "r");
  if (maps == nullptr) return found;
  char line[4096];
  while (fgets(line, sizeof(line), maps) != nullptr) {
    if (strstr(line, text) != nullptr) found.push_back(line);
  }
  fclose(maps);
  return found;
}

// The memory of ours: it has no name in any file system, and is gone with the
// last process that has it.
std::vector<std::string> SharedMemoryOf(pid_t pid) {
  return Holds(pid, "memfd:miniray");
}

// Memory that would stay, by its name.
std::vector<std::string> NamedMemoryOf(pid_t pid) {
  return Holds(pid, "/dev/shm/");
}

// Names in /dev/shm, whoever made them.
std::set<std::string> Names() {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it("/dev/shm", error), end; !error && it != end;
       it.increment(error)) {
    names.insert(it->path().filename());
  }
  return names;
}

bool HasNumber(absl::string_view name, pid_t number) {
  for (absl::string_view word : absl::StrSplit(name, absl::ByAnyChar("._-"))) {
    pid_t found = 0;
    if (absl::SimpleAtoi(word, &found) && found == number) return true;
  }
  return false;
}

// Names that were not there before and could be of these processes: they say
// so, or have the number of one, as LibTorch's have. Other tests run side by
// side.
std::vector<std::string> LeftNames(const std::set<std::string>& before,
                                   const std::vector<pid_t>& pids) {
  std::vector<std::string> left;
  for (const std::string& name : Names()) {
    if (before.contains(name)) continue;
    const bool ours = absl::StrContains(name, "miniray") ||
                      std::any_of(pids.begin(), pids.end(), [&](pid_t pid) {
                        return HasNumber(name, pid);
                      });
    if (ours) left.push_back(name);
  }
  return left;
}

// What has a name is seen, unlinked or not.
TEST(SharedMemoryLeftoversTest, MemoryWithANameWouldBeFound) {
  const std::set<std::string> before = Names();
  std::string path =
      absl::StrCat("/dev/shm/leftovers-test-", getpid(), "-XXXXXX");
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  ASSERT_GE(fd, 0) << strerror(errno);
  EXPECT_THAT(NamedMemoryOf(getpid()), ElementsAre(path));
  EXPECT_THAT(LeftNames(before, {getpid()}),
              ElementsAre(fs::path(path).filename()));
  EXPECT_EQ(unlink(path.c_str()), 0);
  EXPECT_THAT(NamedMemoryOf(getpid()), ElementsAre(StartsWith(path)));
  close(fd);
  EXPECT_THAT(NamedMemoryOf(getpid()), IsEmpty());
  EXPECT_THAT(LeftNames(before, {getpid()}), IsEmpty());
}

TEST(SharedMemoryLeftoversTest, NothingStaysWhoeverIsKilledWhenever) {
  const std::set<std::string> before = Names();
  RealCluster cluster;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int kill_number = 0; kill_number < 12; ++kill_number) {
    auto driver =
        cluster.tree().Start({BuiltProgram("tests/integration/tensor_program"),
                              "--address", cluster.address()});
    const std::vector<std::string> ready =
        absl::StrSplit(driver->ReadLine(), ' ');
    ASSERT_EQ(ready.size(), 3) << ready[0];
    ASSERT_EQ(ready[0], "ready");
    std::vector<pid_t> pids = {driver->pid(), 0, 0};
    ASSERT_TRUE(absl::SimpleAtoi(ready[1], &pids[1]));
    ASSERT_TRUE(absl::SimpleAtoi(ready[2], &pids[2]));
    // Somewhere in a round, which no two runs share.
    for (unsigned rounds = random() % 8; rounds > 0; --rounds) {
      ASSERT_THAT(driver->ReadLine(), testing::ContainsRegex("^[0-9]+$"));
    }
    for (volatile unsigned spin = random() % 3'000'000; spin > 0;) {
      spin = spin - 1;
    }
    const pid_t victim = pids[kill_number % pids.size()];
    if (kill_number % pids.size() != 0) {
      // The others hold what it lent, and what they lent it.
      EXPECT_THAT(SharedMemoryOf(driver->pid()), testing::Not(IsEmpty()));
    }
    for (pid_t pid : pids) EXPECT_THAT(NamedMemoryOf(pid), IsEmpty());
    ASSERT_EQ(kill(victim, SIGKILL), 0);
    driver->Wait();
    for (pid_t pid : pids) EXPECT_TRUE(cluster.tree().WaitForEnd(pid));
    EXPECT_THAT(LeftNames(before, pids), IsEmpty());
    // Head, daemon, its guardian and template go on, and hold nothing.
    for (pid_t pid : cluster.tree().Living()) {
      EXPECT_TRUE(Eventually([&] { return SharedMemoryOf(pid).empty(); }))
          << "process " << pid << " holds "
          << testing::PrintToString(SharedMemoryOf(pid));
      EXPECT_THAT(NamedMemoryOf(pid), IsEmpty());
    }
    EXPECT_THAT(LeftNames(before, cluster.tree().Living()), IsEmpty());
  }
}

}  // namespace
}  // namespace miniray
