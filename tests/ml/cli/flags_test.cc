#include "ml/cli/flags.h"

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_FLAG(int64_t, batch_size, 128, "images in a step");
ABSL_FLAG(double, lr, 0.0002, "learning rate");
ABSL_FLAG(
    std::string, save_dir, "models/gan",
    "folder for the models, with a text that is long enough to be wrapped "
    "onto a second line of the help");
ABSL_FLAG(bool, distributed, false, "use a cluster");
ABSL_FLAG(uint64_t, seed, 1, "of all random numbers");
ABSL_FLAG(bool, notify, false, "a bool that begins with no");
ABSL_FLAG(int, hidden, 0, "defined, but not the program's");

namespace miniray::ml {
namespace {

using ::testing::HasSubstr;

ProgramHelp Help() {
  return {.name = "prog",
          .summary = "Does things.",
          .groups = {{"Main", {"batch_size", "lr", "save_dir"}},
                     {"More", {"distributed", "seed", "notify"}}},
          .examples = {{"prog --lr 0.1", "a fast one"}}};
}

class FlagsTest : public ::testing::Test {
 protected:
  absl::StatusOr<ParsedArguments> Parse(std::vector<const char*> args) {
    return ParseFlags(Help(), args);
  }

  std::string Error(std::vector<const char*> args) {
    const absl::Status status = Parse(std::move(args)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

 private:
  absl::FlagSaver saver_;
};

TEST_F(FlagsTest, TakesEverySpelling) {
  for (const std::vector<const char*>& args :
       std::vector<std::vector<const char*>>{
           {"--batch-size", "64"},
           {"--batch-size=64"},
           {"--batch_size", "64"},
           {"--batch_size=64"},
           {"-batch-size=64"},
           {"--batch-size=3", "--batch-size=64"}}) {
    absl::SetFlag(&FLAGS_batch_size, 1);
    EXPECT_EQ(*Parse(args), ParsedArguments::kRun);
    EXPECT_EQ(absl::GetFlag(FLAGS_batch_size), 64) << args[0];
  }
}

TEST_F(FlagsTest, ValuesMayLookLikeFlagsOrHoldEquals) {
  ASSERT_TRUE(Parse({"--lr", "-1", "--save-dir=a=b"}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_lr), -1);
  EXPECT_EQ(absl::GetFlag(FLAGS_save_dir), "a=b");
  ASSERT_TRUE(Parse({"--save-dir="}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_save_dir), "");
}

TEST_F(FlagsTest, BoolsNeedNoValue) {
  ASSERT_TRUE(Parse({"--distributed", "--seed", "7"}).ok());
  EXPECT_TRUE(absl::GetFlag(FLAGS_distributed));
  EXPECT_EQ(absl::GetFlag(FLAGS_seed), 7);
  for (const char* off :
       {"--nodistributed", "--no-distributed", "--distributed=false"}) {
    absl::SetFlag(&FLAGS_distributed, true);
    ASSERT_TRUE(Parse({off}).ok()) << off;
    EXPECT_FALSE(absl::GetFlag(FLAGS_distributed)) << off;
  }
  ASSERT_TRUE(Parse({"--notify"}).ok());
  EXPECT_TRUE(absl::GetFlag(FLAGS_notify));
}

TEST_F(FlagsTest, UnknownFlagsSuggestTheNearest) {
  EXPECT_THAT(
      Error({"--batchsize=3"}),
      HasSubstr("unknown flag --batchsize; did you mean --batch-size?"));
  EXPECT_THAT(Error({"--batch", "3"}), HasSubstr("did you mean --batch-size?"));
  EXPECT_THAT(Error({"--sede=3"}), HasSubstr("did you mean --seed?"));
  EXPECT_EQ(Error({"--frobnicate"}), "unknown flag --frobnicate; see --help");
  EXPECT_THAT(Error({"--hidden=1"}), HasSubstr("unknown flag --hidden"));
  EXPECT_THAT(Error({"--nolr"}), HasSubstr("unknown flag --nolr"));
  EXPECT_THAT(Error({"--"}), HasSubstr("unknown flag --"));
}

TEST_F(FlagsTest, MissingAndBadValues) {
  EXPECT_EQ(Error({"--batch-size"}),
            "--batch-size needs a value: --batch-size=N");
  EXPECT_EQ(Error({"--lr=fast"}), "--lr is 'fast'; expected a number");
  EXPECT_EQ(Error({"--batch-size=1.5"}),
            "--batch-size is '1.5'; expected a whole number");
  EXPECT_EQ(Error({"--batch-size=99999999999999999999"}),
            "--batch-size is '99999999999999999999'; expected a whole number");
  EXPECT_EQ(Error({"--seed=-1"}),
            "--seed is '-1'; expected a whole number, 0 or more");
  EXPECT_EQ(Error({"--distributed=maybe"}),
            "--distributed is 'maybe'; expected true or false");
  EXPECT_THAT(Error({"train"}), HasSubstr("unexpected argument 'train'"));
}

TEST_F(FlagsTest, HelpIsAskedForAnywhere) {
  EXPECT_EQ(*Parse({"--help"}), ParsedArguments::kHelp);
  EXPECT_EQ(*Parse({"--lr=1", "-h"}), ParsedArguments::kHelp);
}

TEST_F(FlagsTest, HelpShowsAllFlagsWithDefaultsAndExamples) {
  const std::string text = HelpText(Help());
  EXPECT_THAT(text, HasSubstr("  --batch-size=N            images in a step "
                              "(default 128)\n"));
  EXPECT_THAT(text, HasSubstr("--save-dir=TEXT"));
  EXPECT_THAT(text, HasSubstr("(default models/gan)"));
  EXPECT_THAT(text, HasSubstr("  --distributed             use a cluster\n"));
  EXPECT_THAT(text, HasSubstr("--address=HOST:PORT"));
  EXPECT_THAT(text, HasSubstr("--tls-dir=DIR"));
  EXPECT_THAT(text, HasSubstr("--plugin=FILE.so"));
  EXPECT_THAT(text, HasSubstr("--help"));
  EXPECT_THAT(text, HasSubstr("  # a fast one\n  prog --lr 0.1\n"));
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 80u) << text.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST_F(FlagsTest, ExitCodes) {
  const auto run = [](std::vector<std::string> args) {
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    return ParseCommandLine(Help(), static_cast<int>(args.size()), argv.data());
  };
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run({"prog", "--help"}), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("Usage: prog"));
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run({"prog", "--lr=x"}), kExitUsage);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "prog: --lr is 'x'; expected a number\n");
  EXPECT_EQ(run({"prog", "--lr=1"}), std::nullopt);
  EXPECT_EQ(run({"prog"}), std::nullopt);
}

TEST(FailTest, IsOneLine) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Fail(Help(), absl::InternalError("a\nb\n"), kExitFailure), 1);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "prog: a b\n");
}

TEST(FinishTest, OutputThatReachedNobodyIsAFailure) {
  EXPECT_EQ(Finish(Help(), absl::OkStatus()), 0);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Finish(Help(), absl::InternalError("no data")), 1);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "prog: no data\n");

  ::testing::internal::CaptureStderr();
  std::cout.setstate(std::ios::badbit);
  EXPECT_EQ(Finish(Help(), absl::OkStatus()), 1);
  std::cout.clear();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("prog: cannot write the output"));
}

}  // namespace
}  // namespace miniray::ml
