// The fid program as a user runs it: with a generator that train has saved and
// a classifier that classification has.

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/files.h"
#include "tests/integration/process_tools.h"

namespace miniray::ml {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FidProgramTest : public ::testing::Test {
 protected:
  RunResult Run(const std::string& program, std::vector<std::string> flags) {
    flags.insert(flags.begin(), BuiltProgram(program));
    return tree_.Run(std::move(flags));
  }

  RunResult Fid(std::vector<std::string> flags) {
    return Run("ml/fid", std::move(flags));
  }

  std::string Path(const std::string& name) const {
    return absl::StrCat(tree_.folder(), "/", name);
  }

  static void ExpectOneLine(const RunResult& result, int exit_code,
                            const std::string& text) {
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << result.err;
  }

  // The number that the last line ends with.
  static double Distance(const RunResult& result) {
    const std::vector<std::string> words =
        absl::StrSplit(result.out, absl::ByAnyChar(" \n"), absl::SkipEmpty());
    double distance = -1;
    EXPECT_FALSE(words.empty());
    if (!words.empty()) {
      EXPECT_TRUE(absl::SimpleAtod(words.back(), &distance)) << result.out;
    }
    return distance;
  }

  ProcessTree tree_;
};

TEST_F(FidProgramTest, ComparesWithTheDataThatTheGeneratorLearned) {
  const RunResult trained =
      Run("ml/train", {"--dataset=synthetic", "--limit=64", "--batch-size=16",
                       "--latent-dim=8", "--threads=1", "--epochs=1",
                       "--save-dir=" + Path("models")});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const RunResult classified =
      Run("ml/examples/classification",
          {"--dataset=synthetic", "--limit=200", "--workers=1", "--epochs=3",
           "--save=" + Path("cnn.pt")});
  ASSERT_EQ(classified.exit_code, 0) << classified.err;
  EXPECT_THAT(classified.out, HasSubstr("Classifier: " + Path("cnn.pt")));

  const std::vector<std::string> flags = {
      "--model=" + Path("models/generator.pt"),
      "--features=" + Path("cnn.pt"),
      "--dataset=synthetic",
      "--limit=200",
      "--count=300",
      "--cache-dir=" + Path("cache")};
  const RunResult alone = Fid(flags);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.err, IsEmpty());
  EXPECT_THAT(alone.out, HasSubstr("Real images: 200, "));
  EXPECT_THAT(alone.out, HasSubstr("Generated images: 300, "));
  EXPECT_THAT(alone.out,
              HasSubstr("not comparable with FID, nor with numbers by another "
                        "file\nclassifier distance (cnn, trained on "
                        "synthetic): "));
  EXPECT_GT(Distance(alone), 0);

  std::vector<std::string> distributed = flags;
  distributed.push_back("--workers=2");
  distributed.push_back("--cache-dir=" + Path("other_cache"));
  const RunResult together = Fid(distributed);
  ASSERT_EQ(together.exit_code, 0) << together.err;
  // Threads round otherwise, by which a pixel may be another one.
  EXPECT_NEAR(Distance(together), Distance(alone), 0.01 * Distance(alone));
  EXPECT_TRUE(tree_.WaitForCount(0));

  const RunResult again = Fid(flags);
  EXPECT_THAT(again.out, HasSubstr("Real images: 200, from " + Path("cache")));
  EXPECT_EQ(Distance(again), Distance(alone));

  // Of the wrong kind, each.
  ExpectOneLine(Fid({"--model=" + Path("cnn.pt"),
                     "--features=" + Path("cnn.pt"), "--dataset=synthetic"}),
                1, "not a generator that `train` saved");
  ExpectOneLine(Fid({"--model=" + Path("models/generator.pt"),
                     "--features=" + Path("models/generator.pt"),
                     "--dataset=synthetic", "--cache-dir="}),
                1, "not a classifier that `classification` saved");
}

// A curve in the history of a training, whose last point the program `fid` says
// again.
TEST_F(FidProgramTest, TrainWritesACurve) {
  const RunResult classified =
      Run("ml/examples/classification",
          {"--dataset=synthetic", "--limit=200", "--workers=1", "--epochs=1",
           "--save=" + Path("cnn.pt")});
  ASSERT_EQ(classified.exit_code, 0) << classified.err;
  const RunResult trained = Run(
      "ml/train",
      {"--dataset=synthetic", "--limit=64", "--batch-size=16", "--latent-dim=8",
       "--mode=distributed", "--workers=2", "--epochs=3", "--eval-fid-every=2",
       "--features=" + Path("cnn.pt"), "--fid-count=300",
       "--fid-cache-dir=" + Path("cache"), "--storage-path=" + Path("runs"),
       "--name=run", "--save-dir=" + Path("models")});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::string name = "classifier distance (cnn, trained on synthetic)";
  EXPECT_THAT(trained.out, HasSubstr("fid: " + name +
                                     " of 300 images, every 2 epochs; not "
                                     "comparable with numbers by another "
                                     "file\n"));
  EXPECT_THAT(trained.out, HasSubstr("Real images: 64, "));

  std::vector<nlohmann::json> epochs;
  for (const absl::string_view line :
       absl::StrSplit(*ReadFile(Path("runs/run/history.jsonl")), '\n',
                      absl::SkipEmpty())) {
    epochs.push_back(nlohmann::json::parse(line));
  }
  ASSERT_EQ(epochs.size(), 3u);
  EXPECT_FALSE(epochs[0]["metrics"].contains("fid"));
  EXPECT_GT(epochs[1]["metrics"]["fid"].get<double>(), 0);
  EXPECT_EQ(epochs[1]["notes"][0]["fid"], name);
  const double last = epochs[2]["metrics"]["fid"].get<double>();
  EXPECT_TRUE(tree_.WaitForCount(0));

  const RunResult again =
      Fid({"--model=" + Path("models/generator.pt"),
           "--features=" + Path("cnn.pt"), "--dataset=synthetic", "--limit=64",
           "--count=300", "--cache-dir=" + Path("cache")});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("Real images: 64, from " + Path("cache")));
  EXPECT_THAT(again.out, HasSubstr(name + ": "));
  // Threads round otherwise, by which a pixel may be another one.
  EXPECT_NEAR(Distance(again), last, 0.01 * last);
}

TEST_F(FidProgramTest, BadUsageExitsWith2) {
  ExpectOneLine(Fid({}), 2, "--model is required");
  ExpectOneLine(Fid({"--model=x"}), 2, "one of --features");
  ExpectOneLine(Fid({"--model=x", "--features=y", "--fid-features=z"}), 2,
                "one of --features");
  ExpectOneLine(Fid({"--model=x", "--features=y", "--count=1"}), 2,
                "--count is 1");
  ExpectOneLine(Fid({"--model=x", "--features=y", "--split=all"}), 2,
                "--split is 'all'");
  ExpectOneLine(Fid({"--model=x", "--features=y", "--dataset=z"}), 2,
                "--dataset is 'z'; expected one of cifar10");
  ExpectOneLine(Fid({"--model=x", "--features=y", "--fid-size=224"}), 2,
                "--fid-size has no effect without --fid-features");
  ExpectOneLine(Fid({"--model=x", "--features=y", "--fid-range=-1..1"}), 2,
                "--fid-range has no effect without --fid-features");
  ExpectOneLine(Fid({"--model=x", "--fid-features=y", "--fid-range=0..9"}), 2,
                "--fid-range is '0..9'");
  ExpectOneLine(Fid({"--model=x", "--features=y", "--num-cpus-per-worker=2"}),
                2, "--num-cpus-per-worker has no effect without --workers");
  ExpectOneLine(Fid({"--model=x", "--features=y", "--address=127.0.0.1:1"}), 2,
                "--address has no effect without --workers");
  ExpectOneLine(Fid({"--model=" + Path("absent.pt"), "--features=y"}), 1,
                "absent.pt");
  const RunResult help = Fid({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Examples:"));
}

}  // namespace
}  // namespace miniray::ml
