// Folders and plug-ins that `miniray submit` sends along with a program.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/files.h"
#include "tests/tools/jobs_testutil.h"
#include "tests/tools/miniray_command.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class JobFolderTest : public JobsTest {
 protected:
  // Files of packages on the node, each with its inode and time of birth, which
  // another one with the same name has not.
  std::set<std::string> FetchedPackages() const {
    std::set<std::string> found;
    std::error_code error;
    for (const auto& session :
         std::filesystem::directory_iterator(runtime_dir(), error)) {
      // The head's own are what it was sent.
      if (absl::StartsWith(session.path().filename().string(), "head-")) {
        continue;
      }
      for (const auto& file : std::filesystem::directory_iterator(
               session.path() / "packages", error)) {
        struct statx info;
        if (file.is_regular_file() &&
            statx(AT_FDCWD, file.path().c_str(), 0, STATX_INO | STATX_BTIME,
                  &info) == 0) {
          found.insert(absl::StrCat(file.path().filename().string(), " ",
                                    info.stx_ino, " ", info.stx_btime.tv_sec,
                                    ".", info.stx_btime.tv_nsec));
        }
      }
    }
    return found;
  }
};

TEST_F(JobFolderTest, TheWorkingFolderTravels) {
  const std::string folder = runtime_dir() + "/folder";
  ASSERT_TRUE(MakeDirectories(folder + "/data").ok());
  ASSERT_TRUE(MakeDirectories(folder + "/.git").ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/data/in", "content\n").ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/.git/secret", "x").ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/run.sh",
                                  "#!/bin/sh\npwd\ncat data/in\nls -A\n"
                                  "echo \"$0 $1\"\necho mark > data/in\n",
                                  0755)
                  .ok());
  // Found in the folder, where it is not in this one.
  for (int i = 0; i < 2; ++i) {
    const CommandResult result =
        Run({"submit", "--working_dir", folder, "--", "./run.sh", "--flag"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    // The same again: no job sees what another one left.
    EXPECT_THAT(result.out, HasSubstr("\ncontent\ndata\nrun.sh\n"));
    EXPECT_THAT(result.out, HasSubstr("--flag\n"));
    EXPECT_THAT(result.out, Not(HasSubstr(folder)));
  }
  EXPECT_EQ(ReadFile(folder + "/data/in").value(), "content\n");
  EXPECT_TRUE(Eventually([this] { return JobFolders().empty(); }));
}

// An unchanged folder is sent to the head once, and fetched by the node once.
TEST_F(JobFolderTest, TheWorkingFolderIsCached) {
  const std::string folder = runtime_dir() + "/folder";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(WriteFileAtomically(folder + "/in", "first\n").ok());
  const std::vector<std::string> command = {
      "submit", "--working_dir", folder, "--timeout=20", "--", "cat", "in"};
  CommandResult result = Run(command);
  EXPECT_EQ(result.out, "first\n") << result.err;
  const std::set<std::string> fetched = FetchedPackages();
  // The folder, and the program.
  EXPECT_EQ(fetched.size(), 2);

  // Now nothing can be sent.
  setenv("MINIRAY_FAULTS", "Head/PutPackage:drop_request=1", 1);
  result = Run(command);
  EXPECT_EQ(result.out, "first\n") << result.err;
  ASSERT_TRUE(WriteFileAtomically(folder + "/in", "second\n").ok());
  result = Run(command);
  unsetenv("MINIRAY_FAULTS");
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(FetchedPackages(), fetched);

  result = Run(command);
  EXPECT_EQ(result.out, "second\n") << result.err;
  EXPECT_EQ(FetchedPackages().size(), fetched.size() + 1);
}

// Plug-ins in the folder, named on the program's own command line.
TEST_F(JobFolderTest, PluginsTravelWithTheWorkingFolder) {
  const std::string folder = runtime_dir() + "/folder";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  for (const std::string name :
       {"libguest_plugin.so", "libbroken_plugin.so", "libold_abi_plugin.so"}) {
    std::filesystem::copy_file(RunfilePath("tests/runtime/worker/" + name),
                               folder + "/" + name);
  }
  auto submit = [&](const std::string& job_id,
                    const std::vector<std::string>& plugin) {
    std::vector<std::string> command = {"submit",
                                        "--working_dir",
                                        folder,
                                        "--job_id",
                                        job_id,
                                        "--",
                                        RunfilePath("tests/tools/job_program")};
    command.insert(command.end(), plugin.begin(), plugin.end());
    command.insert(command.end(), {"knows", "miniray::Guest"});
    return Run(command);
  };
  CommandResult result = submit("without", {});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("the actor does not know it"));
  result = submit("with", {"--plugin", "libguest_plugin.so"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("the actor knows it"));
  result = submit("broken", {"--plugin", "libbroken_plugin.so"});
  EXPECT_EQ(result.exit_code, 2);
  nlohmann::json job = Job("broken");
  EXPECT_EQ(job["state"], "JOB_STATE_FAILED");
  EXPECT_THAT(std::string(job["cause"]),
              AllOf(HasSubstr("plug-in libbroken_plugin.so"),
                    HasSubstr("elsewhere::NobodyHasThis(int)")));
  result = submit("old", {"--plugin", "libold_abi_plugin.so"});
  EXPECT_EQ(result.exit_code, 2);
  job = Job("old");
  EXPECT_EQ(job["state"], "JOB_STATE_FAILED");
  EXPECT_THAT(std::string(job["cause"]),
              AllOf(HasSubstr("plug-in libold_abi_plugin.so"),
                    ContainsRegex("built for .*C\\+\\+ ABI [0-9]+/0"),
                    ContainsRegex("this program is .*/1,")));
  // The node bears all of it.
  EXPECT_EQ(kill(daemon_, 0), 0);
  result = submit("again", {"--plugin", "libguest_plugin.so"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("the actor knows it"));
}

TEST_F(JobFolderTest, ATooLargeFolderIsRefusedBeforeItIsSent) {
  const std::string folder = runtime_dir() + "/folder";
  ASSERT_TRUE(MakeDirectories(folder).ok());
  ASSERT_TRUE(
      WriteFileAtomically(folder + "/big", std::string(3 << 20, 'x')).ok());
  const CommandResult result =
      Run({"submit", "--working_dir", folder, "--max_folder_bytes=1000000",
           "--", "true"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("big (3.0 MiB)"),
                                HasSubstr("--max_folder_bytes")));
  EXPECT_EQ(Run({"job", "list", "--format=json"}).out, "[]\n");
  EXPECT_EQ(
      Run({"submit", "--working_dir", folder + "/no", "--", "true"}).exit_code,
      1);
}

}  // namespace
}  // namespace miniray
