#include "runtime/worker/log_janitor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray {
namespace {

using ::testing::UnorderedElementsAre;

class LogJanitorTest : public ::testing::Test {
 protected:
  LogJanitorTest() {
    options_.actor_folder = folder_ / "logs";
    options_.job_folder = folder_ / "logs/jobs";
    EXPECT_TRUE(MakeDirectories(options_.job_folder).ok());
  }

  // `age` in seconds. Returns its path.
  std::string Put(const std::string& name, int64_t bytes = 10, int age = 0) {
    const std::string path = folder_ / ("logs/" + name);
    EXPECT_TRUE(WriteFileAtomically(path, std::string(bytes, 'x')).ok());
    const timespec times[2] = {{time(nullptr) - age, 0},
                               {time(nullptr) - age, 0}};
    EXPECT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    return path;
  }

  std::set<std::string> Names() {
    std::set<std::string> names;
    for (const auto& file :
         std::filesystem::recursive_directory_iterator(folder_ / "logs")) {
      if (file.is_directory()) continue;
      names.insert(file.path().lexically_relative(folder_ / "logs"));
    }
    return names;
  }

  TempFolder folder_;
  LogJanitor::Options options_;
};

TEST_F(LogJanitorTest, OnlyTheLastProcessesOfAnActorKeepTheirLogs) {
  options_.max_incarnations = 2;
  Put("C-actor-1.8.log");
  Put("C-actor-1.9.log");
  Put("C-actor-1.9.log.1");
  Put("C-actor-1.10.log");
  Put("C-actor-1.11.log");
  Put("C-actor-2.0.log");
  Put("template-x.log");
  const std::string living = Put("C-actor-1.7.log");
  LogJanitor::Clean(options_, {living});
  EXPECT_THAT(Names(),
              UnorderedElementsAre("C-actor-1.10.log", "C-actor-1.11.log",
                                   "C-actor-2.0.log", "template-x.log",
                                   "C-actor-1.7.log"));
}

TEST_F(LogJanitorTest, BeyondTheLimitTheOldestGo) {
  options_.max_bytes = 250;
  Put("C-actor-1.0.log", 100, 50);
  Put("C-actor-1.0.log.1", 100, 60);
  Put("jobs/job-1.log", 100, 70);
  const std::string living = Put("C-actor-2.0.log", 100, 80);
  Put("C-actor-3.0.log", 100, 5);
  Put("other.txt", 100, 90);  // Not a log.
  LogJanitor::Clean(options_, {living});
  EXPECT_THAT(Names(), UnorderedElementsAre("C-actor-2.0.log",
                                            "C-actor-3.0.log", "other.txt"));
}

TEST_F(LogJanitorTest, TheirNumberIsLimitedToo) {
  options_.max_logs = 3;
  for (int i = 0; i < 6; ++i) Put(absl::StrCat("C-actor-", i, ".0.log"), 1, i);
  LogJanitor::Clean(options_, {});
  EXPECT_THAT(Names(),
              UnorderedElementsAre("C-actor-0.0.log", "C-actor-1.0.log",
                                   "C-actor-2.0.log"));
}

TEST_F(LogJanitorTest, LinksToALogThatIsGoneGoWithTheirActor) {
  options_.max_incarnations = 1;
  const std::string log = Put("group-shared-1.log");
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(
        symlink(log.c_str(),
                (folder_ / absl::StrCat("logs/C-actor-1.", i, ".log")).c_str()),
        0);
  }
  LogJanitor::Clean(options_, {});
  EXPECT_THAT(Names(),
              UnorderedElementsAre("group-shared-1.log", "C-actor-1.2.log"));
}

}  // namespace
}  // namespace miniray
