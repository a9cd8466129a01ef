// Generation by real worker processes.

#include "ml/gan/generation_run.h"

#include <signal.h>

#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/gan/generator_worker.h"
#include "ml/image/png.h"
#include "proto/head.pb.h"
#include "runtime/base/files.h"
#include "tests/ml/cli/text_bar.h"
#include "tests/ml/gan/gan_testutil.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::ml {
namespace {

using ::testing::HasSubstr;

class GenerationRunTest : public ::testing::Test {
 protected:
  // A folder that is not there yet: the image of an earlier run would be taken
  // for one of this run.
  static std::string Folder(const std::string& name) {
    const std::string folder = ::testing::TempDir() + "/" + name;
    std::filesystem::remove_all(folder);
    return folder;
  }

  GenerationRunOptions Options(const std::string& name) {
    return {
        .num_images = 30, .output = Folder(name), .seed = 11, .batch_size = 7};
  }

  absl::Status Run(const GenerationRunOptions& options,
                   const GanModel& model = SmallGenerator()) {
    TextBar bar;
    return RunGeneration(model, options, bar.get());
  }

  // Waits for the first image, and kills so many living workers. Returns how
  // many it has killed.
  static int KillWorkers(const Cluster& connection, const std::string& output,
                         int count) {
    // Workers start first, which may take long on a busy machine.
    EXPECT_TRUE(Eventually(
        [&] { return std::filesystem::exists(output + "/image_0000.png"); },
        absl::Seconds(60)));
    int killed = 0;
    const auto state = connection.GetState();
    EXPECT_TRUE(state.ok()) << state.status();
    if (!state.ok()) return 0;
    for (const auto& actor : state->actors()) {
      if (killed == count || actor.state() != v1::ACTOR_STATE_ALIVE) continue;
      if (kill(static_cast<pid_t>(actor.pid()), SIGKILL) == 0) ++killed;
    }
    // Else this has tested nothing.
    EXPECT_FALSE(std::filesystem::exists(output + "/grid.png"));
    return killed;
  }

  static void ExpectSameFiles(const std::string& a, const std::string& b) {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(a)) {
      const std::string name = entry.path().filename();
      EXPECT_EQ(*ReadFile(a + "/" + name), *ReadFile(b + "/" + name)) << name;
      ++files;
    }
    EXPECT_GT(files, 1);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(b),
                            std::filesystem::directory_iterator()),
              files);
  }
};

TEST_F(GenerationRunTest, WritesImagesAndGrid) {
  GenerationRunOptions options = Options("single");
  options.columns = 3;
  ASSERT_EQ(Run(options), absl::OkStatus());
  EXPECT_TRUE(std::filesystem::exists(options.output + "/image_000.png"));
  EXPECT_TRUE(std::filesystem::exists(options.output + "/image_029.png"));
  EXPECT_FALSE(std::filesystem::exists(options.output + "/image_030.png"));
  // Three rows of three, with two pixels around each.
  const at::Tensor grid = *ReadPng(options.output + "/grid.png");
  EXPECT_EQ(grid.sizes(), at::IntArrayRef({1, 32, 32}));
  const at::Tensor second = *ReadPng(options.output + "/image_001.png");
  EXPECT_TRUE(grid.slice(1, 2, 10).slice(2, 12, 20).equal(second));
}

TEST_F(GenerationRunTest, WorkersMakeTheSameImages) {
  ASSERT_EQ(Run(Options("expected")), absl::OkStatus());
  TestCluster cluster;
  for (const int workers : {1, 2, 4}) {
    GenerationRunOptions options =
        Options("workers_" + std::to_string(workers));
    options.cluster = cluster.Connect();
    options.workers = workers;
    options.batch_size = 5;
    ASSERT_EQ(Run(options), absl::OkStatus());
    ExpectSameFiles(::testing::TempDir() + "/expected", options.output);
  }
}

TEST_F(GenerationRunTest, WorkersMakeTheClassThatIsAskedFor) {
  GanOptions gan = SmallGanOptions();
  gan.architecture = GanArchitecture::kDcgan;
  gan.classes = 3;
  const GanModel model = SmallGenerator(gan);
  GenerationRunOptions options = Options("class_2");
  options.label = 2;
  ASSERT_EQ(Run(options, model), absl::OkStatus());
  GenerationRunOptions mixed = Options("mixed");
  ASSERT_EQ(Run(mixed, model), absl::OkStatus());
  EXPECT_NE(*ReadFile(options.output + "/image_000.png"),
            *ReadFile(mixed.output + "/image_000.png"));

  TestCluster cluster;
  const std::string expected = options.output;
  options.output = Folder("class_2_workers");
  options.cluster = cluster.Connect();
  options.workers = 2;
  ASSERT_EQ(Run(options, model), absl::OkStatus());
  ExpectSameFiles(expected, options.output);
}

TEST_F(GenerationRunTest, TheWorkOfADeadWorkerGoesToTheOthers) {
  GenerationRunOptions options = Options("survived");
  options.num_images = 4000;
  options.batch_size = 4;
  TestCluster cluster;
  const Cluster connection = cluster.Connect();
  options.cluster = connection;
  options.workers = 1;
  ASSERT_EQ(Run(options), absl::OkStatus());

  const std::string expected = options.output;
  options.output = Folder("survivor");
  options.workers = 3;
  int killed = 0;
  std::thread killer(
      [&] { killed = KillWorkers(connection, options.output, 1); });
  const absl::Status status = Run(options);
  killer.join();
  ASSERT_EQ(status, absl::OkStatus());
  EXPECT_EQ(killed, 1);
  ExpectSameFiles(expected, options.output);
}

TEST_F(GenerationRunTest, WithoutWorkersItSaysWhatThereIs) {
  GenerationRunOptions options = Options("abandoned");
  options.num_images = 4000;
  options.batch_size = 4;
  TestCluster cluster;
  const Cluster connection = cluster.Connect();
  options.cluster = connection;
  options.workers = 2;
  int killed = 0;
  std::thread killer(
      [&] { killed = KillWorkers(connection, options.output, 2); });
  const absl::Status status = Run(options);
  killer.join();
  EXPECT_EQ(killed, 2);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(" of 4000 images are in " + options.output));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no worker is left"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the last one: worker "));
  // Those that were made stay.
  EXPECT_TRUE(std::filesystem::exists(options.output + "/image_0000.png"));
  EXPECT_FALSE(std::filesystem::exists(options.output + "/grid.png"));
}

TEST_F(GenerationRunTest, AnImageThatCannotBeWrittenSaysWhatThereIs) {
  GenerationRunOptions options = Options("blocked");
  // A folder lies where an image is to be.
  std::filesystem::create_directories(options.output + "/image_010.png");
  const absl::Status alone = Run(options);
  EXPECT_FALSE(alone.ok());
  // The second batch is images 7 to 13.
  EXPECT_THAT(std::string(alone.message()),
              HasSubstr("10 of 30 images are in " + options.output + ": "));
  EXPECT_THAT(std::string(alone.message()), HasSubstr("image_010.png"));
  EXPECT_TRUE(std::filesystem::exists(options.output + "/image_009.png"));

  TestCluster cluster;
  options.cluster = cluster.Connect();
  options.workers = 2;
  const absl::Status together = Run(options);
  EXPECT_FALSE(together.ok());
  EXPECT_THAT(std::string(together.message()),
              HasSubstr(" of 30 images are in " + options.output + ": "));
  EXPECT_THAT(std::string(together.message()), HasSubstr("image_010.png"));
}

TEST_F(GenerationRunTest, WorkersRefuseWhatTheyCannotDo) {
  GeneratorWorker worker;
  EXPECT_EQ(worker.Generate(1, 0, 1).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const GanModel model = SmallGenerator();
  GanSizes sizes = model.sizes();
  sizes.shape.channels = 3;
  EXPECT_EQ(worker.Load(sizes, std::nullopt, model.weights).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(worker.Load(model.sizes(), 0, model.weights).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(worker.Load(model.sizes(), std::nullopt, model.weights),
            absl::OkStatus());
  EXPECT_TRUE(worker.Generate(1, 0, 1).ok());
  for (const int64_t count :
       {int64_t{0}, int64_t{-1}, GeneratorWorker::kMaxCount + 1}) {
    EXPECT_EQ(worker.Generate(1, 0, count).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(worker.Generate(1, -1, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(GenerationRunTest, AFolderThatCannotBeMadeIsAnError) {
  GenerationRunOptions options = Options("file");
  ASSERT_EQ(WriteFileAtomically(options.output, "x"), absl::OkStatus());
  options.output += "/sub";
  const absl::Status status = Run(options);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("--output"));
}

}  // namespace
}  // namespace miniray::ml

TEST_CLUSTER_MAIN()
