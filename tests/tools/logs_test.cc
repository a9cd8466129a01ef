// What actors print: at their drivers and by `miniray logs`; the timeline; the
// lists. With real processes.

#include <signal.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/net.h"
#include "tests/tools/miniray_command.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

class LogsTest : public CommandTest {
 protected:
  void SetUp() override {
    CommandTest::SetUp();
    address_ = StartHead();
    setenv("MINIRAY_ADDRESS", address_.c_str(), 1);
    daemon_ = StartDaemon(address_, {"--num_cpus=4"});
  }
  void TearDown() override {
    unsetenv("MINIRAY_ADDRESS");
    unsetenv("MINIRAY_LOG_TO_DRIVER");
    CommandTest::TearDown();
  }

  static std::unique_ptr<Program> Driver(const std::vector<std::string>& args) {
    return std::make_unique<Program>(RunfilePath("tests/tools/job_program"),
                                     args);
  }
  static nlohmann::json List(std::vector<std::string> args) {
    args.insert(args.begin(), "list");
    args.insert(args.end(), {"--format", "json"});
    const CommandResult result = Run(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out, nullptr, false);
  }

  // Those of a table's records that are in this state, e.g. ALIVE.
  static std::vector<nlohmann::json> In(const std::string& state,
                                        const std::string& table) {
    std::vector<nlohmann::json> found;
    for (const nlohmann::json& record : List({table})) {
      if (absl::EndsWith(std::string(record["state"]), "_STATE_" + state)) {
        found.push_back(record);
      }
    }
    return found;
  }

  std::string address_;
  pid_t daemon_ = 0;
};

TEST_F(LogsTest, DriversSeeWhatTheirActorsPrint) {
  const CommandResult result = Driver({"say", "hello there"})->Wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, MatchesRegex("\\(Talker pid=[0-9]+ node=" +
                                       Hostname() + "\\) hello there\n"));
}

TEST_F(LogsTest, NothingIsLostAtTheEnd) {
  const CommandResult counted = Driver({"count", "20000"})->Wait();
  EXPECT_EQ(counted.exit_code, 0);
  const std::vector<std::string> lines = absl::StrSplit(counted.err, '\n');
  ASSERT_EQ(lines.size(), 20001) << counted.err.substr(0, 1000);
  EXPECT_TRUE(absl::EndsWith(lines[19999], ") line 19999")) << lines[19999];
  // Nor what was not flushed, and has no end of line.
  const CommandResult mumbled = Driver({"mumble", "half a line"})->Wait();
  EXPECT_THAT(mumbled.err, MatchesRegex(".*\\) half a line\n"));
}

TEST_F(LogsTest, NothingIsLostInACrash) {
  const CommandResult result = Driver({"die", "last words"})->Wait();
  EXPECT_THAT(result.err, HasSubstr(") last words\n"));
}

TEST_F(LogsTest, JobsDoNotMix) {
  std::vector<std::unique_ptr<Program>> drivers;
  for (const char* text : {"of one", "of two"}) {
    drivers.push_back(Driver({"wait", text}));
  }
  for (const auto& driver : drivers) {
    ASSERT_EQ(driver->ReadLine(absl::Seconds(40)), "ready");
  }
  const CommandResult one = drivers[0]->Wait();
  EXPECT_THAT(one.err, AllOf(HasSubstr("of one"), Not(HasSubstr("of two"))));
  const CommandResult two = drivers[1]->Wait();
  EXPECT_THAT(two.err, AllOf(HasSubstr("of two"), Not(HasSubstr("of one"))));
}

TEST_F(LogsTest, OnRequestDriversSeeNothing) {
  setenv("MINIRAY_LOG_TO_DRIVER", "0", 1);
  const CommandResult result = Driver({"say", "hello", "quiet"})->Wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_EQ(Run({"logs", "quiet"}).out, "hello\n");
}

TEST_F(LogsTest, LogsOfTheLivingAndTheDead) {
  const auto driver = Driver({"wait", "hello", "talker"});
  ASSERT_EQ(driver->ReadLine(absl::Seconds(40)), "ready");
  const nlohmann::json actors = List({"actors"});
  ASSERT_EQ(actors.size(), 1);
  const std::string id = actors[0]["actor_id"];
  EXPECT_EQ(Run({"logs", "talker"}).out, "hello\n");
  EXPECT_EQ(Run({"logs", id}).out, "hello\n");
  EXPECT_EQ(Run({"logs", id.substr(0, id.size() - 3)}).out, "hello\n");
  const auto follower = Start({"logs", "talker", "--follow"});
  EXPECT_EQ(follower->ReadLine(), "hello");
  EXPECT_EQ(driver->Wait().exit_code, 0);
  const CommandResult followed = follower->Wait();
  EXPECT_EQ(followed.exit_code, 0) << followed.err;
  EXPECT_THAT(followed.out, IsEmpty());
  EXPECT_EQ(Run({"logs", "talker"}).out, "hello\n");
  EXPECT_EQ(Run({"logs", id, "--follow"}).out, "hello\n");
  const CommandResult unknown = Run({"logs", "nobody"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("no actor or job is called 'nobody'"));

  ASSERT_EQ(kill(daemon_, SIGTERM), 0);
  ASSERT_TRUE(Eventually([] { return In("ALIVE", "nodes").empty(); }));
  const CommandResult gone = Run({"logs", "talker"});
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_THAT(gone.err, AllOf(HasSubstr("is on node"), HasSubstr(".log")));
}

TEST_F(LogsTest, WhoFollowsSeesTheNextProcessToo) {
  const auto driver = Driver({"again", "hello", "phoenix"});
  ASSERT_EQ(driver->ReadLine(absl::Seconds(40)), "ready");
  const auto follower = Start({"logs", "phoenix", "--follow"});
  EXPECT_EQ(follower->ReadLine(), "hello");
  const std::string pid = List({"actors"})[0]["pid"];
  ASSERT_EQ(kill(static_cast<pid_t>(std::stoi(pid)), SIGKILL), 0);
  EXPECT_EQ(follower->ReadLine(absl::Seconds(40)), "hello again");
  EXPECT_EQ(driver->Wait().exit_code, 0);
  const CommandResult followed = follower->Wait();
  EXPECT_EQ(followed.exit_code, 0) << followed.err;
  EXPECT_THAT(followed.out, IsEmpty());
  EXPECT_EQ(Run({"logs", "phoenix"}).out, "hello\nhello again\n");
}

TEST_F(LogsTest, SubmittedDriversShowTheirActorsToo) {
  const CommandResult result =
      Run({"submit", "--job_id=j", "--", RunfilePath("tests/tools/job_program"),
           "say", "hello"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              MatchesRegex("\\(Talker pid=[0-9]+ node=.*\\) hello\n"));
  const nlohmann::json jobs = List({"jobs"});
  ASSERT_EQ(jobs.size(), 1);  // The driver's job is the submitted one.
  EXPECT_EQ(jobs[0]["program"], "job_program");
  EXPECT_EQ(jobs[0]["state"], "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(Run({"submit", "--job_id=k", "--",
                 RunfilePath("tests/tools/job_program"), "job_id"})
                .out,
            "job k\n");
}

TEST_F(LogsTest, StoppingAJobEndsItsActors) {
  const std::string program = RunfilePath("tests/tools/job_program");
  const auto submitted =
      Start({"submit", "--job_id=j", "--", program, "wait", "x", "talker"});
  while (true) {
    const auto line = submitted->ReadLine(absl::Seconds(40));
    ASSERT_TRUE(line.has_value());
    if (*line == "ready") break;
  }
  ASSERT_EQ(In("ALIVE", "actors").size(), 1);
  EXPECT_EQ(Run({"job", "stop", "j"}).exit_code, 0);
  EXPECT_THAT(In("ALIVE", "actors"), IsEmpty());
  EXPECT_EQ(submitted->Wait().exit_code, 128 + SIGTERM);

  // A driver that connected by itself can be stopped as well.
  const auto driver = Driver({"wait", "x", "talker"});
  ASSERT_EQ(driver->ReadLine(absl::Seconds(40)), "ready");
  const std::vector<nlohmann::json> running = In("RUNNING", "jobs");
  ASSERT_EQ(running.size(), 1);
  const std::string id = running[0]["job_id"];
  EXPECT_EQ(Run({"job", "stop", id}).out,
            absl::StrCat("Job ", id, " stopped.\n"));
  EXPECT_THAT(In("ALIVE", "actors"), IsEmpty());
}

TEST_F(LogsTest, Lists) {
  const auto driver = Driver({"wait", "x", "talker"});
  ASSERT_EQ(driver->ReadLine(absl::Seconds(40)), "ready");
  EXPECT_EQ(List({"nodes"}).size(), 1);
  EXPECT_EQ(List({"placement-groups"}).size(), 0);
  EXPECT_EQ(List({"actors"}).size(), 1);
  EXPECT_EQ(List({"jobs"}).size(), 1);
  EXPECT_EQ(List({"packages"}).size(), 1);
  EXPECT_EQ(List({"actors", "--filter", "state=ALIVE"}).size(), 1);
  EXPECT_EQ(List({"actors", "--filter", "state=dead"}).size(), 0);
  const std::vector<std::string> both = {"actors", "--filter", "state=alive",
                                         "--filter", "name=other"};
  EXPECT_EQ(List(both).size(), 0);
  const CommandResult wrong = Run({"list", "actors", "--filter", "colour=red"});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("'colour'"));
  EXPECT_THAT(Run({"list", "actors"}).out,
              AllOf(HasSubstr("talker"), HasSubstr("alive")));
  driver->Wait();
  EXPECT_THAT(Run({"status"}).out,
              AllOf(Not(HasSubstr("talker")), HasSubstr("1 dead")));
  EXPECT_THAT(Run({"status", "--all"}).out, HasSubstr("talker"));
}

TEST_F(LogsTest, ListsPlacementGroups) {
  const auto driver = Driver({"group", "", "pair"});
  ASSERT_EQ(driver->ReadLine(absl::Seconds(40)), "ready");
  const auto all = List({"placement-groups"});
  ASSERT_EQ(all.size(), 2);  // The oldest first.
  EXPECT_EQ(all[0]["name"], "pair");
  EXPECT_EQ(all[0]["strategy"], "PLACEMENT_STRATEGY_PACK");
  EXPECT_EQ(all[0]["bundles"].size(), 2);
  EXPECT_EQ(all[1]["name"], "too large");
  const auto only = [](const std::string& filter) {
    std::vector<std::string> names;
    for (const auto& group : List({"placement-groups", "--filter", filter})) {
      names.push_back(group["name"]);
    }
    return names;
  };
  EXPECT_THAT(only("name=pair"), ElementsAre("pair"));
  EXPECT_THAT(only("strategy=strict_spread"), ElementsAre("too large"));
  EXPECT_THAT(only("state=created"), ElementsAre("pair"));
  EXPECT_THAT(only("name=other"), IsEmpty());
  const CommandResult table = Run({"list", "placement-groups"});
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_THAT(table.out, AllOf(HasSubstr("pair"), HasSubstr("too large"),
                               HasSubstr("strict_spread")));
  const CommandResult wrong =
      Run({"list", "placement-groups", "--filter", "colour=red"});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("'colour'"));
  // They end with their driver.
  driver->Wait();
  EXPECT_THAT(only("state=created"), IsEmpty());
  EXPECT_THAT(only("state=removed"), ElementsAre("pair", "too large"));
}

TEST_F(LogsTest, HowADriverEndedThatConnectedByItselfIsNotKnown) {
  // It takes its leave, and fails all the same.
  const CommandResult failed = Driver({"nonsense"})->Wait();
  ASSERT_EQ(failed.exit_code, 1) << failed.err;
  ASSERT_EQ(Run({"submit", "--job_id=s", "--", "true"}).exit_code, 0);
  ASSERT_TRUE(Eventually([] { return In("RUNNING", "jobs").empty(); }));
  for (const std::string& list :
       {Run({"job", "list"}).out, Run({"status"}).out}) {
    EXPECT_THAT(list, MatchesRegex("(.|\n)*job_program +ended (.|\n)*"));
  }
  const nlohmann::json ended = List({"jobs", "--filter", "state=ended"});
  ASSERT_EQ(ended.size(), 1);
  EXPECT_EQ(ended[0]["program"], "job_program");
  const nlohmann::json succeeded =
      List({"jobs", "--filter", "state=succeeded"});
  ASSERT_EQ(succeeded.size(), 1);
  EXPECT_EQ(succeeded[0]["job_id"], "s");
  const std::string id = ended[0]["job_id"];
  EXPECT_THAT(Run({"job", "status", id}).out, HasSubstr("State:      ended\n"));
  EXPECT_EQ(Run({"job", "stop", id}).out,
            absl::StrCat("Job ", id, " had already ended.\n"));
}

TEST_F(LogsTest, TheTimelineHasTheCalls) {
  ASSERT_EQ(Driver({"say", "hello", "talker"})->Wait().exit_code, 0);
  nlohmann::json trace;
  const auto calls = [&](const std::string& method) {
    int count = 0;
    for (const auto& event : trace["traceEvents"]) {
      if (event["ph"] == "X" && event["name"] == method) ++count;
    }
    return count;
  };
  ASSERT_TRUE(Eventually([&] {
    trace = nlohmann::json::parse(Run({"timeline"}).out, nullptr, false);
    return calls("Say") == 1;
  })) << trace;
  EXPECT_EQ(calls("Pid"), 1);
  EXPECT_THAT(trace.dump(), HasSubstr("Talker 'talker' (pid "));
  const std::string file = runtime_dir() + "/trace.json";
  EXPECT_THAT(Run({"timeline", "--output", file}).out, HasSubstr(file));
  trace = nlohmann::json::parse(Run({"timeline", "--job", "no-such-job"}).out,
                                nullptr, false);
  EXPECT_TRUE(trace["traceEvents"].empty());
}

}  // namespace
}  // namespace miniray
