// What `miniray status` and `miniray stop` do about actors.

#include <signal.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/process_records.h"
#include "tests/runtime/base/stop_process.h"
#include "tests/tools/miniray_command.h"

namespace miniray {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class ActorsTest : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    address_ = StartHead();
    daemon_ = StartDaemon(address_, {"--num_cpus=2"});
    driver_ = std::make_unique<Program>(
        RunfilePath("tests/tools/actor_program"),
        std::vector<std::string>{"--address=" + address_});
    ASSERT_EQ(driver_->ReadLine().value_or("nothing"), "ready")
        << driver_->Wait().err;
  }

  void TearDown() override {
    driver_.reset();
    CommandTest::TearDown();
  }

  static Json Actor(const std::string& name) {
    const Json state =
        Json::parse(Run({"status", "--format=json"}).out, nullptr, false);
    for (const Json& actor : state.value("actors", Json::array())) {
      if (actor["name"] == name) return actor;
    }
    ADD_FAILURE() << "no actor " << name;
    return {};
  }

  static pid_t PidOfActor(const std::string& name) {
    pid_t pid = 0;
    EXPECT_TRUE(
        absl::SimpleAtoi(Actor(name).value("pid", std::string()), &pid));
    return pid;
  }

  std::string address_;
  pid_t daemon_ = 0;
  std::unique_ptr<Program> driver_;
};

TEST_F(ActorsTest, StatusShowsThem) {
  EXPECT_EQ(Actor("runs")["state"], "ACTOR_STATE_ALIVE");
  EXPECT_EQ(Actor("waits")["state"], "ACTOR_STATE_PENDING");
  const std::string table = Run({"status"}).out;
  EXPECT_THAT(table, HasSubstr("Actors: 2"));
  EXPECT_THAT(table, ContainsRegex("Sleeper +runs +alive +node-[0-9a-f]+"));
  // Why it waits: what it asks for.
  EXPECT_THAT(table, ContainsRegex("Sleeper +waits +pending .*1000"));
  EXPECT_THAT(table, HasSubstr("Jobs: 1"));
  EXPECT_THAT(table, ContainsRegex("job-[0-9a-f]+ +actor_program +running"));
  EXPECT_THAT(table, HasSubstr("  1/2  "));  // CPUs used.
}

TEST_F(ActorsTest, StatusCountsRestarts) {
  const pid_t first = PidOfActor("runs");
  ASSERT_EQ(kill(first, SIGKILL), 0);
  EXPECT_TRUE(Eventually([&] {
    const Json actor = Actor("runs");
    return actor["restarts"] == 1 && actor["state"] == "ACTOR_STATE_ALIVE";
  }));
  EXPECT_THAT(Run({"status"}).out, ContainsRegex("signal 9"));
}

TEST_F(ActorsTest, StopEndsThem) {
  const pid_t actor = PidOfActor("runs");
  EXPECT_EQ(Run({"stop"}).exit_code, 0);
  EXPECT_FALSE(ProcessStartTicks(actor).ok());
}

TEST_F(ActorsTest, StopForceEndsThoseOfAFrozenDaemon) {
  const pid_t actor = PidOfActor("runs");
  ASSERT_TRUE(StopProcess(actor));
  ASSERT_TRUE(StopProcess(daemon_));
  EXPECT_EQ(Run({"stop", "--force"}).exit_code, 0);
  EXPECT_FALSE(ProcessStartTicks(actor).ok());
}

}  // namespace
}  // namespace miniray
