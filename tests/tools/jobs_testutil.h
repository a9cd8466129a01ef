// A head, a node with 4 CPUs, and `miniray submit` and `miniray job` with them.

#ifndef MINIRAY_TESTS_TOOLS_JOBS_TESTUTIL_H_
#define MINIRAY_TESTS_TOOLS_JOBS_TESTUTIL_H_

#include <sys/types.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/tools/miniray_command.h"

namespace miniray {

class JobsTest : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    address_ = StartHead();
    setenv("MINIRAY_ADDRESS", address_.c_str(), 1);
    daemon_ = StartDaemon(address_, {"--num_cpus=4"});
  }
  void TearDown() override {
    unsetenv("MINIRAY_ADDRESS");
    CommandTest::TearDown();
  }

  static std::vector<std::string> Shell(std::vector<std::string> flags,
                                        const std::string& script) {
    flags.insert(flags.begin(), "submit");
    flags.insert(flags.end(), {"--", "sh", "-c", script});
    return flags;
  }
  // Runs a script as a job.
  static CommandResult Submit(const std::string& script,
                              std::vector<std::string> flags = {}) {
    return Run(Shell(std::move(flags), script));
  }
  static nlohmann::json Job(const std::string& id) {
    const CommandResult result = Run({"job", "status", id, "--format", "json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false);
  }
  static std::string StateOf(const std::string& id) {
    return Job(id).value("state", "");
  }
  static bool EventuallyIn(const std::string& id, const std::string& state) {
    return Eventually([&] { return StateOf(id) == "JOB_STATE_" + state; });
  }
  // Folders of jobs on the node.
  std::vector<std::string> JobFolders() const {
    std::vector<std::string> found;
    std::error_code error;
    for (const auto& session :
         std::filesystem::directory_iterator(runtime_dir(), error)) {
      for (const auto& job : std::filesystem::directory_iterator(
               session.path() / "jobs", error)) {
        found.push_back(job.path().string());
      }
    }
    return found;
  }

  std::string address_;
  pid_t daemon_ = 0;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_TOOLS_JOBS_TESTUTIL_H_
