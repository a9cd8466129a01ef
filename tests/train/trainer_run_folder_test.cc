// Run folders of trainings with real workers, also of those that end badly.

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"
#include "tests/train/event_file_reader.h"
#include "tests/train/quadratic_worker.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

// With this in its environment, "ADDRESS FOLDER", the test's executable is a
// program that trains there without end.
constexpr char kTrainVariable[] = "RUN_FOLDER_TEST_TRAIN";

TrainerOptions TwoWorkers(const Cluster& cluster, const std::string& storage) {
  return {.num_workers = 2,
          .cluster = cluster,
          .storage_path = storage,
          .name = "run"};
}

// The lines that are whole; *cut is what follows them.
std::vector<Json> WholeLines(const std::string& path, std::string* cut) {
  std::vector<std::string> lines = absl::StrSplit(*ReadFile(path), '\n');
  *cut = lines.back();
  lines.pop_back();
  std::vector<Json> parsed;
  for (const std::string& line : lines) parsed.push_back(Json::parse(line));
  return parsed;
}

std::vector<ReadEvent> Events(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (absl::StrContains(path, "tfevents")) return ReadEvents(*ReadFile(path));
  }
  ADD_FAILURE() << "no event file in " << folder;
  return {};
}

// Shows a picture after each epoch.
class PictureTrainer : public QuadraticTrainer {
 public:
  using QuadraticTrainer::QuadraticTrainer;

 protected:
  void OnEpochEnd(int epoch, const EpochResult& result) override {
    ReportImage("samples", epoch, absl::StrCat("picture ", epoch), 10, 20);
  }
};

class TrainerRunFolderTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    nodes_ = new TestCluster({.node_cpus = {8}});
    cluster_ = new Cluster(nodes_->Connect());
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete nodes_;
  }

  TrainerOptions Options() { return TwoWorkers(*cluster_, temp_.path()); }

  static TestCluster* nodes_;
  static Cluster* cluster_;
  TempFolder temp_;
};
TestCluster* TrainerRunFolderTest::nodes_;
Cluster* TrainerRunFolderTest::cluster_;

// Also where the head is told of nothing.
TEST_F(TrainerRunFolderTest, TensorBoardHasThePictures) {
  TrainerOptions options = Options();
  options.report = false;
  PictureTrainer trainer(options, {});
  const auto result = trainer.Train({.epochs = 2});
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->warnings, IsEmpty());
  std::vector<std::string> pictures;
  for (const ReadEvent& event : Events(temp_ / "run")) {
    for (const auto& [tag, image] : event.images) {
      EXPECT_EQ(tag, "samples");
      EXPECT_EQ(event.step, static_cast<int64_t>(pictures.size()));
      EXPECT_EQ(image.width, 10u);
      EXPECT_EQ(image.height, 20u);
      pictures.push_back(image.encoded);
    }
  }
  EXPECT_THAT(pictures, ElementsAre("picture 0", "picture 1"));
}

TEST_F(TrainerRunFolderTest, HoldsWhatTheResultTells) {
  TrainerOptions options = Options();
  options.sync_interval = 2;
  QuadraticTrainer trainer(options, {.targets = {4, 8}});
  // A line is there when the next epoch begins.
  std::vector<size_t> lines_at_epoch_end;
  std::string cut;
  trainer.at_epoch_end = [&](int epoch) {
    lines_at_epoch_end.push_back(
        WholeLines(temp_ / "run/history.jsonl", &cut).size());
  };
  const auto result = trainer.Train({.epochs = 3});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->path, temp_ / "run");
  EXPECT_THAT(result->warnings, IsEmpty());
  // The trainer's own hook comes first.
  EXPECT_THAT(lines_at_epoch_end, ElementsAre(0, 1, 2));

  const std::vector<Json> lines = WholeLines(temp_ / "run/history.jsonl", &cut);
  EXPECT_EQ(cut, "");
  ASSERT_THAT(lines, SizeIs(3));
  // From 0, half of the way to 4 and to 8.
  EXPECT_EQ(lines[0]["metrics"]["x"], 3.0);
  EXPECT_EQ(lines[0]["min"]["x"], 2.0);
  EXPECT_EQ(lines[0]["max"]["x"], 4.0);
  EXPECT_EQ(lines[0]["per_worker"][1]["x"], 4.0);
  EXPECT_EQ(lines[0]["synced"], false);
  EXPECT_EQ(lines[1]["synced"], true);
  EXPECT_EQ(lines[1]["sync"]["version"], 1);

  const Json json = Json::parse(*ReadFile(temp_ / "run/result.json"));
  EXPECT_TRUE(json["error"].is_null());
  ASSERT_EQ(json["history"].size(), 3);
  EXPECT_EQ(json["history"][2], lines[2]);
  EXPECT_EQ(json["timing"]["compute"].get<double>(), result->timing().compute);

  const std::vector<ReadEvent> events = Events(temp_ / "run");
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[1].scalars.at("x/mean"), 3.f);
  EXPECT_EQ(events[3].step, 2);
}

TEST_F(TrainerRunFolderTest, AnErrorStandsInTheResult) {
  QuadraticTrainer trainer(Options(), {.faults = {{1, {2, "kill"}}}});
  const auto result = trainer.Train({.epochs = 5});
  ASSERT_FALSE(result.ok());
  const Json json = Json::parse(*ReadFile(temp_ / "run/result.json"));
  EXPECT_EQ(json["error"]["code"].get<std::string>(), "UNAVAILABLE");
  EXPECT_EQ(json["error"]["message"].get<std::string>(),
            std::string(result.status().message()));
  EXPECT_THAT(json["error"]["message"].get<std::string>(),
              AllOf(HasSubstr("epoch 3/5: worker 1:"), HasSubstr("signal 9")));
  EXPECT_EQ(json["epochs"], 2);
  EXPECT_GT(json["seconds"].get<double>(), 0);
  EXPECT_EQ(trainer.last_result().path, temp_ / "run");
}

TEST_F(TrainerRunFolderTest, AnOlderTrainingIsNotOverwritten) {
  {
    QuadraticTrainer trainer(Options(), {});
    ASSERT_THAT(trainer.Train({.epochs = 2}), IsOk());
  }
  QuadraticTrainer trainer(Options(), {});
  EXPECT_THAT(trainer.Train({.epochs = 1}),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       HasSubstr("use another name")));
  EXPECT_THAT(trainer.events, IsEmpty());
  std::string cut;
  EXPECT_THAT(WholeLines(temp_ / "run/history.jsonl", &cut), SizeIs(2));
}

TEST_F(TrainerRunFolderTest, ATrainingWithoutAnEpochLeavesTheNameFree) {
  QuadraticTrainer trainer(Options(), {});
  EXPECT_FALSE(trainer.Train({.epochs = 1, .config = {{"lr", "fast"}}}).ok());
  EXPECT_TRUE(std::filesystem::exists(temp_ / "run/result.json"));
  EXPECT_THAT(trainer.Train({.epochs = 1}), IsOk());
  EXPECT_TRUE(
      Json::parse(*ReadFile(temp_ / "run/result.json"))["error"].is_null());
}

TEST_F(TrainerRunFolderTest, WithoutAStoragePathThereIsNone) {
  TrainerOptions options = Options();
  options.storage_path.clear();
  QuadraticTrainer named(options, {});
  EXPECT_THAT(named.Train({.epochs = 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("without storage_path")));
  options.name.clear();
  QuadraticTrainer trainer(options, {});
  const auto result = trainer.Train({.epochs = 1});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->path, "");
}

// /dev/full is a disk without room.
TEST_F(TrainerRunFolderTest, AFullDiskIsAWarningAndNotTheEnd) {
  std::filesystem::create_directory(temp_ / "run");
  std::filesystem::create_symlink("/dev/full", temp_ / "run/history.jsonl");
  QuadraticTrainer trainer(Options(), {});
  const auto result = trainer.Train({.epochs = 3});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->history.size(), 3);
  EXPECT_THAT(result->warnings,
              ElementsAre(AllOf(HasSubstr("run folder is not complete"),
                                HasSubstr("history.jsonl: No space left"))));
  EXPECT_EQ(Json::parse(*ReadFile(temp_ / "run/result.json"))["warnings"],
            Json(result->warnings));
  EXPECT_THAT(Events(temp_ / "run"), SizeIs(4)) << "what can be written, is";
}

// Trains in a process of its own, which is killed once `epochs` are in the
// history.
TEST_F(TrainerRunFolderTest, AKilledTrainerLeavesWholeLines) {
  for (const int epochs : {1, 3, 10, 40}) {
    SCOPED_TRACE(epochs);
    TempFolder storage;
    const std::string variable = absl::StrCat(
        kTrainVariable, "=", nodes_->address(), " ", storage.path());
    std::vector<char*> environment = {const_cast<char*>(variable.c_str())};
    for (char** entry = environ; *entry != nullptr; ++entry) {
      environment.push_back(*entry);
    }
    environment.push_back(nullptr);
    char program[] = "trainer_run_folder_test";
    char* const argv[] = {program, nullptr};
    pid_t trainer = 0;
    ASSERT_EQ(posix_spawn(&trainer, "/proc/self/exe", nullptr, nullptr, argv,
                          environment.data()),
              0);
    const std::string path = storage / "run/history.jsonl";
    std::string cut;
    const bool trained = Eventually(
        [&] {
          return std::filesystem::exists(path) &&
                 WholeLines(path, &cut).size() >= static_cast<size_t>(epochs);
        },
        absl::Seconds(60));
    kill(trainer, SIGKILL);
    int how = 0;
    ASSERT_EQ(waitpid(trainer, &how, 0), trainer);
    ASSERT_TRUE(trained);
    EXPECT_TRUE(WIFSIGNALED(how)) << "it ended by itself";

    // WholeLines throws for one that is no JSON.
    const std::vector<Json> lines = WholeLines(path, &cut);
    EXPECT_THAT(lines, SizeIs(Ge(static_cast<size_t>(epochs))));
    for (size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i]["epoch"], i);
      EXPECT_EQ(lines[i]["per_worker"].size(), 2);
    }
    EXPECT_FALSE(Json::accept(cut)) << "a cut line that looks like a whole one";
    // At most the last epoch is in one of the two files only.
    const std::vector<ReadEvent> events = Events(storage / "run");
    EXPECT_THAT(events.size(),
                AllOf(Ge(lines.size()), ::testing::Le(lines.size() + 1)));
    EXPECT_FALSE(std::filesystem::exists(storage / "run/result.json"));
  }
}

// Returns only when something goes wrong.
int TrainWithoutEnd(const std::string& where) {
  const std::vector<std::string> parts = absl::StrSplit(where, ' ');
  auto cluster = Cluster::Connect({.address = parts.at(0)});
  if (!cluster.ok()) return 1;
  QuadraticTrainer trainer(TwoWorkers(*cluster, parts.at(1)), {});
  return trainer.Train({.epochs = 1'000'000'000}).ok() ? 2 : 3;
}

}  // namespace
}  // namespace miniray::train

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  if (const char* where = std::getenv(miniray::train::kTrainVariable)) {
    return miniray::train::TrainWithoutEnd(where);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
