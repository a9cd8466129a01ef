#include "tools/cli/command_line.h"

#include <limits>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/memory_limit.h"
#include "tools/cli/flags.h"
#include "tools/cli/shell_word.h"
#include "tools/cli/start_options.h"
#include "tools/cli/submit_options.h"
#include "tools/cli/verbs.h"

namespace miniray::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class CommandLineTest : public ::testing::Test {
 private:
  absl::FlagSaver saver_;
};

absl::StatusOr<StartOptions> Read(const std::vector<std::string>& args) {
  const absl::FlagSaver saver;
  const auto line = ParseCommandLine(args, Verbs());
  if (!line.ok()) return line.status();
  return ReadStartOptions(*line);
}

TEST_F(CommandLineTest, SpellingsOfFlags) {
  const auto line = ParseCommandLine(
      {"start", "--num-cpus", "2.5", "--dashboard_port=-1", "--node-ip=1.2.3.4",
       "--head", "--port", "0", "--block=false"},
      Verbs());
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->verb->name, "start");
  EXPECT_EQ(absl::GetFlag(FLAGS_num_cpus), 2.5);
  EXPECT_EQ(absl::GetFlag(FLAGS_dashboard_port), -1);
  EXPECT_EQ(absl::GetFlag(FLAGS_node_ip), "1.2.3.4");
  EXPECT_TRUE(absl::GetFlag(FLAGS_head));
  EXPECT_FALSE(absl::GetFlag(FLAGS_block));
  EXPECT_THAT(line->given,
              UnorderedElementsAre("num_cpus", "dashboard_port", "node_ip",
                                   "head", "port", "block"));
}

TEST_F(CommandLineTest, NegatedBool) {
  const auto line = ParseCommandLine({"start", "--head", "--nohead"}, Verbs());
  ASSERT_TRUE(line.ok());
  EXPECT_FALSE(absl::GetFlag(FLAGS_head));
}

TEST_F(CommandLineTest, NegativeNumberIsAValue) {
  ASSERT_TRUE(ParseCommandLine({"start", "--num_cpus", "-1"}, Verbs()).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_num_cpus), -1);
}

TEST_F(CommandLineTest, ForwardsWhatWasGiven) {
  const auto line = ParseCommandLine(
      {"start", "--head", "--num-cpus", "2", "--resources", "a=1,b=2"},
      Verbs());
  ASSERT_TRUE(line.ok());
  EXPECT_THAT(
      ForwardFlags(*line, {"num_cpus", "port", "resources", "head"}),
      ElementsAre("--num_cpus=2", "--resources=a=1,b=2", "--head=true"));
}

absl::StatusOr<SubmitOptions> ReadSubmit(const std::vector<std::string>& args) {
  const absl::FlagSaver saver;
  const auto line = ParseCommandLine(args, Verbs());
  if (!line.ok()) return line.status();
  return ReadSubmitOptions(*line);
}

TEST_F(CommandLineTest, WhatFollowsTwoDashesIsTheCommand) {
  const auto options = ReadSubmit(
      {"submit", "--env", "A=1", "--num_cpus=2", "--env=B=x=y", "--no_wait",
       "--resources", "slot=1", "--job-id=j.1", "--working_dir=/d", "--",
       "./trainer", "--help", "--num_cpus=7", "--"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(options->spec.command(),
              ElementsAre("./trainer", "--help", "--num_cpus=7", "--"));
  EXPECT_THAT(options->spec.env(),
              UnorderedElementsAre(Pair("A", "1"), Pair("B", "x=y")));
  EXPECT_THAT(options->spec.resources().quantity(),
              UnorderedElementsAre(Pair("CPU", 2), Pair("slot", 1)));
  EXPECT_EQ(options->spec.job_id(), "j.1");
  EXPECT_EQ(options->working_dir, "/d");
  EXPECT_EQ(options->max_folder_bytes, 500 << 20);
  EXPECT_FALSE(options->wait);
}

TEST_F(CommandLineTest, SubmittedJobsTakeNothingByDefault) {
  const auto options = ReadSubmit({"submit", "--", "x"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->spec.resources().quantity().empty());
  EXPECT_TRUE(options->wait);
  EXPECT_NE(options->spec.job_id(), "");
}

TEST_F(CommandLineTest, HelpNamesEveryFlag) {
  for (const Verb& verb : Verbs()) {
    for (const std::string& flag : verb.flags) {
      EXPECT_NE(absl::FindCommandLineFlag(flag), nullptr) << flag;
      EXPECT_THAT(verb.help, HasSubstr("--" + flag)) << verb.name;
    }
    for (const std::string& flag : verb.hidden_flags) {
      EXPECT_NE(absl::FindCommandLineFlag(flag), nullptr) << flag;
    }
    for (const std::string& flag : verb.repeated_flags) {
      EXPECT_THAT(verb.help, HasSubstr("--" + flag)) << verb.name;
    }
  }
}

TEST_F(CommandLineTest, HeadWithoutCpusIsOnlyAHead) {
  const auto options = Read({"start", "--head", "--host=localhost"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->host, "127.0.0.1");
  EXPECT_EQ(options->port, 6380);
  EXPECT_EQ(options->dashboard_port, 8266);
  EXPECT_FALSE(options->with_daemon);
  EXPECT_FALSE(Read({"start", "--head", "--num_cpus=0"})->with_daemon);
  EXPECT_TRUE(Read({"start", "--head", "--num_cpus=1"})->with_daemon);
}

TEST_F(CommandLineTest, NodeOffersTheMachine) {
  const auto options = Read({"start", "--address=127.0.0.1:1"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(options->resources.quantity(),
              UnorderedElementsAre(Pair("CPU", UsableCpus()),
                                   Pair("memory", UsableMemoryBytes())));
  EXPECT_GE(UsableCpus(), 1);
  EXPECT_GT(UsableMemoryBytes(), 1 << 27);
}

TEST_F(CommandLineTest, NodeShowsMetricsAtAnyPortUnlessToldOtherwise) {
  EXPECT_EQ(Read({"start", "--address=1.2.3.4:5"})->metrics_port, 0);
  EXPECT_EQ(
      Read({"start", "--address=1.2.3.4:5", "--metrics_port=-1"})->metrics_port,
      -1);
  EXPECT_EQ(Read({"start", "--head", "--num_cpus=1", "--metrics-port=9100"})
                ->metrics_port,
            9100);
  const auto wrong =
      Read({"start", "--address=1.2.3.4:5", "--metrics_port=-2"});
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(wrong.status().message()),
              HasSubstr("--metrics_port=-2: a port is in [-1, 65535]"));
}

TEST_F(CommandLineTest, NodeMayOfferNoCpu) {
  const auto options = Read({"start", "--address=[::1]:1", "--num_cpus=0"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->resources.quantity().at("CPU"), 0);
}

TEST(ParseResourcesTest, Lists) {
  EXPECT_THAT(ParseResources("").value().quantity(), ElementsAre());
  EXPECT_THAT(
      ParseResources(" a =1,b=0.5,memory=1e9").value().quantity(),
      UnorderedElementsAre(Pair("a", 1), Pair("b", 0.5), Pair("memory", 1e9)));
}

TEST(ParseResourcesTest, Mistakes) {
  for (const char* list : {"a", "a=", "=1", "a=x", "a=-1", "a=inf", "a=nan",
                           "a=1,a=2", "CPU=1", "GPU=1", "a=1 b=2"}) {
    const auto resources = ParseResources(list);
    EXPECT_EQ(resources.status().code(), absl::StatusCode::kInvalidArgument)
        << list;
    EXPECT_THAT(std::string(resources.status().message()),
                HasSubstr("--resources"));
  }
}

TEST(ShellWordTest, IsQuotedWhereAShellWouldTakeItApart) {
  EXPECT_EQ(ShellWord("/home/me/certs-1"), "/home/me/certs-1");
  EXPECT_EQ(ShellWord("/home/me/my certs"), "'/home/me/my certs'");
  EXPECT_EQ(ShellWord("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("a+b/c=&#%41$x"), "'a+b/c=&#%41$x'");
}

TEST(QueryValueTest, HasNothingThatMeansSomethingInAnAddress) {
  EXPECT_EQ(QueryValue("Az09-._~"), "Az09-._~");
  EXPECT_EQ(QueryValue("a+b/c=&#%41$x"), "a%2Bb%2Fc%3D%26%23%2541%24x");
  EXPECT_EQ(QueryValue(" \xc3\xa4"), "%20%C3%A4");
  EXPECT_EQ(QueryValue(""), "");
}

}  // namespace
}  // namespace miniray::cli
