#include "runtime/worker/oom_kills.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// As waitpid has them.
constexpr int kKilled = SIGKILL;
constexpr int kAborted = SIGABRT;
constexpr int kExitedWith137 = 137 << 8;

class OomKillsTest : public ::testing::Test {
 protected:
  absl::StatusOr<int64_t> count_ = 7;
  absl::Time now_ = absl::UnixEpoch();
  OomKills kills_{[this] { return count_; }, [this] { return now_; }};
};

TEST_F(OomKillsTest, EachKillExplainsOneEnd) {
  EXPECT_THAT(kills_.Explain(kKilled), IsEmpty());  // There were 7 before.
  count_ = 9;
  EXPECT_THAT(kills_.Explain(kAborted), IsEmpty());
  EXPECT_THAT(kills_.Explain(kExitedWith137), IsEmpty());
  EXPECT_THAT(kills_.Explain(kKilled), HasSubstr("the kernel ended a process"));
  EXPECT_THAT(kills_.Explain(kKilled), HasSubstr("--memory_limit"));
  EXPECT_THAT(kills_.Explain(kKilled), IsEmpty());
}

TEST_F(OomKillsTest, OldKillsExplainNothing) {
  count_ = 8;
  kills_.Look();
  now_ += OomKills::kMemory;
  count_ = 9;
  kills_.Look();
  now_ += absl::Seconds(1);
  EXPECT_THAT(kills_.Explain(kKilled), HasSubstr("kernel"));
  EXPECT_THAT(kills_.Explain(kKilled), IsEmpty());
}

TEST_F(OomKillsTest, AKernelThatDoesNotCountExplainsNothing) {
  count_ = absl::NotFoundError("no oom_kill");
  EXPECT_THAT(kills_.Explain(kKilled), IsEmpty());
  // It is back, and nothing has happened that anybody knows of.
  count_ = 7;
  EXPECT_THAT(kills_.Explain(kKilled), IsEmpty());
  count_ = 8;
  EXPECT_THAT(kills_.Explain(kKilled), HasSubstr("kernel"));
}

TEST(ReadOomKillsTest, ReadsWhatThisKernelCounts) {
  const absl::StatusOr<int64_t> count = ReadOomKills();
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_GE(*count, 0);
}

// A control group with 32 MiB of memory, of version 2 or 1.
class TightGroup {
 public:
  TightGroup() {
    const std::string groups = ReadFile("/proc/self/cgroup").value_or("");
    for (absl::string_view line : absl::StrSplit(groups, '\n')) {
      const std::vector<std::string> parts =
          absl::StrSplit(line, absl::MaxSplits(':', 2));
      if (parts.size() < 3) continue;
      if (parts[1].empty()) {
        Make(absl::StrCat("/sys/fs/cgroup", parts[2]), "memory.max");
      } else if (absl::StrContains(parts[1], "memory")) {
        Make(absl::StrCat("/sys/fs/cgroup/memory", parts[2]),
             "memory.limit_in_bytes");
      }
      if (!folder_.empty()) return;
    }
  }
  ~TightGroup() {
    if (!folder_.empty()) rmdir(folder_.c_str());
  }
  bool made() const { return !folder_.empty(); }
  // Brings this process into it.
  bool Enter() const { return Write(folder_ + "/cgroup.procs", "0"); }

 private:
  static bool Write(const std::string& file, const std::string& text) {
    std::ofstream out(file);
    out << text << std::flush;
    return out.good();
  }
  void Make(const std::string& parent, const std::string& limit) {
    const std::string folder =
        absl::StrCat(parent, "/miniray-oom-test-", getpid());
    if (mkdir(folder.c_str(), 0700) != 0) return;
    if (Write(absl::StrCat(folder, "/", limit), absl::StrCat(32 << 20))) {
      folder_ = folder;
    } else {
      rmdir(folder.c_str());
    }
  }

  std::string folder_;
};

TEST(OomKillsOfTheKernelTest, AreToldFromOtherKills) {
  const TightGroup group;
  if (!group.made()) {
    GTEST_SKIP() << "no control group with a limit can be made here";
  }
  OomKills kills;
  const pid_t child = fork();
  if (child == 0) {
    if (!group.Enter()) _exit(1);
    constexpr size_t kBytes = size_t{256} << 20;
    void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, kBytes);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  EXPECT_THAT(kills.Explain(status), HasSubstr("the kernel ended a process"));
  EXPECT_THAT(kills.Explain(status), IsEmpty());
}

}  // namespace
}  // namespace miniray
