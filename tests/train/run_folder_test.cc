// What a run folder holds, without a trainer.

#include "train/run_folder.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/train/event_file_reader.h"

namespace miniray::train {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Json = nlohmann::json;

EpochResult Epoch(int epoch) {
  EpochResult result;
  result.epoch = epoch;
  result.metrics = {{"loss", 1.5}};
  result.min = {{"loss", 1}};
  result.max = {{"loss", 2}};
  result.per_worker = {{{"loss", 1}}, {{"loss", 2}}};
  result.seconds = 4;
  result.timing = {.compute = 2, .wait = 0.5, .sync = 1, .checkpoint = 0.25};
  return result;
}

std::vector<Json> Lines(const std::string& path) {
  std::vector<Json> lines;
  const std::string text = *ReadFile(path);
  EXPECT_TRUE(text.empty() || text.back() == '\n') << text;
  for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    lines.push_back(Json::parse(std::string(line)));
  }
  return lines;
}

std::unique_ptr<RunFolder> Make(const std::string& storage,
                                const std::string& name) {
  auto folder = RunFolder::Create(storage, name);
  EXPECT_THAT(folder, IsOk());
  return *std::move(folder);
}

TEST(RunFolderTest, HasALineAnEpoch) {
  TempFolder temp;
  const auto folder = Make(temp / "runs", "first");
  EXPECT_EQ(folder->path(), temp / "runs/first");
  TrainContext context(2, 2);
  EpochResult synced = Epoch(0);
  synced.synced = true;
  synced.sync = {.version = 7, .num_workers = 2, .bytes = 1'000'000'000'000};
  folder->OnEpochEnd(context, synced);
  EXPECT_THAT(Lines(temp / "runs/first/history.jsonl"),
              ElementsAre(Json::parse(R"({
                "epoch": 0, "metrics": {"loss": 1.5}, "min": {"loss": 1.0},
                "max": {"loss": 2.0},
                "per_worker": [{"loss": 1.0}, {"loss": 2.0}], "seconds": 4.0,
                "timing": {"compute": 2.0, "wait": 0.5, "sync": 1.0,
                           "checkpoint": 0.25},
                "synced": true,
                "sync": {"version": 7, "num_workers": 2, "num_refused": 0,
                         "num_lost": 0, "num_behind": 0, "repeated": false,
                         "num_pieces": 0, "bytes": 1000000000000, "bytes_saved": 0,
                         "seconds_pull": 0.0, "seconds_aggregate": 0.0,
                         "seconds_push": 0.0}})")));
  folder->OnEpochEnd(context, Epoch(1));
  const std::vector<Json> lines = Lines(temp / "runs/first/history.jsonl");
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[1]["epoch"], 1);
  EXPECT_FALSE(lines[1].contains("sync"));
  EXPECT_THAT(context.warnings(), IsEmpty());
}

// Before checkpoints had a time, and synchronisations workers that are behind.
TEST(RunFolderTest, LinesOfEarlierVersionsAreRead) {
  EpochResult synced = Epoch(0);
  synced.synced = true;
  synced.sync = {.version = 7, .num_behind = 2};
  EXPECT_EQ(EpochResult::FromJson(synced.ToJson())->sync.num_behind, 2);
  Json line = Json::parse(synced.ToJson());
  line["timing"].erase("checkpoint");
  line["sync"].erase("num_behind");
  const auto epoch = EpochResult::FromJson(line.dump());
  ASSERT_THAT(epoch, IsOk());
  EXPECT_EQ(epoch->timing.sync, 1);
  EXPECT_EQ(epoch->timing.checkpoint, 0);
  EXPECT_EQ(epoch->sync.version, 7);
  EXPECT_EQ(epoch->sync.num_behind, 0);
}

TEST(RunFolderTest, EventFilesHoldWhatTensorBoardShows) {
  TempFolder temp;
  const auto folder = Make(temp.path(), "r");
  TrainContext context(2, 2);
  folder->OnEpochEnd(context, Epoch(0));
  folder->OnEpochEnd(context, Epoch(1));
  std::vector<ReadEvent> events;
  for (const auto& entry : std::filesystem::directory_iterator(temp / "r")) {
    if (absl::StrContains(entry.path().string(), "tfevents")) {
      events = ReadEvents(*ReadFile(entry.path().string()));
    }
  }
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(events[1 + epoch].step, epoch);
    EXPECT_GT(events[1 + epoch].wall_time, 1.7e9);
    EXPECT_EQ(events[1 + epoch].scalars,
              (std::map<std::string, float>{{"loss/mean", 1.5f},
                                            {"loss/min", 1.f},
                                            {"loss/max", 2.f},
                                            {"seconds/epoch", 4.f},
                                            {"seconds/compute", 2.f},
                                            {"seconds/wait", 0.5f},
                                            {"seconds/sync", 1.f}}));
  }
}

// Epochs 2 and 3 are trained again, by another process and by the same one.
TEST(RunFolderTest, TensorBoardShowsWhatIsTrainedAgainOnce) {
  TempFolder temp;
  TrainContext context(2, 4);
  const auto lose = [](int epoch, double loss) {
    EpochResult result = Epoch(epoch);
    result.metrics["loss"] = loss;
    return result;
  };
  std::vector<EpochResult> history;
  {
    const auto folder = Make(temp.path(), "r");
    for (int epoch = 0; epoch < 4; ++epoch) {
      folder->OnEpochEnd(context, lose(epoch, 1));
      if (epoch < 2) history.push_back(lose(epoch, 1));
    }
  }
  for (const double loss : {2, 3}) {
    auto folder = RunFolder::Open(temp.path(), "r");
    ASSERT_THAT(folder, IsOk());
    ASSERT_THAT((*folder)->Begin(), IsOk());
    (*folder)->SetHistory(context, history);
    (*folder)->OnEpochEnd(context, lose(2, loss));
    (*folder)->SetHistory(context, history);
    (*folder)->OnEpochEnd(context, lose(2, loss + 10));
  }
  std::set<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(temp / "r")) {
    const std::string path = entry.path().string();
    if (absl::StrContains(path, "tfevents")) paths.insert(path);
  }
  std::vector<ReadEvent> events;
  for (const std::string& path : paths) {
    const std::vector<ReadEvent> more = ReadEvents(*ReadFile(path));
    events.insert(events.end(), more.begin(), more.end());
  }
  EXPECT_EQ(ShownScalars(events)["loss/mean"],
            (std::map<int64_t, float>{{0, 1.f}, {1, 1.f}, {2, 13.f}}));
  EXPECT_THAT(context.warnings(), IsEmpty());
}

TEST(RunFolderTest, NumbersAndNamesThatJsonHasNotAreThereAllTheSame) {
  TempFolder temp;
  const auto folder = Make(temp.path(), "r");
  TrainContext context(1, 1);
  EpochResult odd = Epoch(0);
  odd.metrics = {{"a", NAN}, {"b", INFINITY}, {"c", -INFINITY}, {"d\xFF", 0.1}};
  folder->OnEpochEnd(context, odd);
  EXPECT_EQ(Lines(temp / "r/history.jsonl")[0]["metrics"],
            Json::object({{"a", "NaN"},
                          {"b", "Infinity"},
                          {"c", "-Infinity"},
                          {"d\xEF\xBF\xBD", 0.1}}));
}

TEST(RunFolderTest, TheResultTellsAllEpochs) {
  TempFolder temp;
  const auto folder = Make(temp.path(), "r");
  TrainContext context(2, 2);
  Result result;
  result.path = folder->path();
  result.history = {Epoch(0), Epoch(1)};
  result.seconds = 9;
  result.warnings = {"it was hot"};
  folder->OnTrainEnd(context, result);
  const Json json = Json::parse(*ReadFile(temp / "r/result.json"));
  EXPECT_EQ(json["path"].get<std::string>(), temp / "r");
  EXPECT_TRUE(json["error"].is_null());
  EXPECT_EQ(json["epochs"], 2);
  EXPECT_EQ(json["metrics"], Json::object({{"loss", 1.5}}));
  EXPECT_EQ(json["seconds"], 9.0);
  EXPECT_EQ(json["timing"], Json::object({{"compute", 4.0},
                                          {"wait", 1.0},
                                          {"sync", 2.0},
                                          {"checkpoint", 0.5}}));
  EXPECT_EQ(json["warnings"], Json::array({"it was hot"}));
  ASSERT_EQ(json["history"].size(), 2);
  EXPECT_EQ(json["history"][1], Json::parse(Epoch(1).ToJson()));
}

TEST(RunFolderTest, TheResultOfAnErrorHasCodeAndText) {
  Result result;
  result.error = absl::UnavailableError("worker 1: signal 9");
  const Json json = Json::parse(result.ToJson());
  EXPECT_EQ(json["error"], Json::object({{"code", "UNAVAILABLE"},
                                         {"message", "worker 1: signal 9"}}));
  EXPECT_EQ(json["epochs"], 0);
  EXPECT_EQ(json["history"], Json::array());
  EXPECT_EQ(json["metrics"], Json::object());
}

TEST(RunFolderTest, WithoutANameOneIsMadeUp) {
  TempFolder temp;
  const auto first = Make(temp.path(), "");
  const auto second = Make(temp.path(), "");
  EXPECT_NE(first->path(), second->path());
  ASSERT_THAT(temp.List(), SizeIs(2));
  EXPECT_THAT(temp.List(),
              Each(MatchesRegex("20[0-9-]+_[0-9]+-[0-9]+-[0-9]+-[0-9a-f]+")));
}

TEST(RunFolderTest, NeverMixesTwoTrainings) {
  TempFolder temp;
  TrainContext context(1, 1);
  {
    const auto folder = Make(temp.path(), "r");
    EXPECT_THAT(RunFolder::Create(temp.path(), "r"),
                StatusIs(absl::StatusCode::kAlreadyExists));
  }
  // The first never got as far as an epoch.
  Make(temp.path(), "r")->OnEpochEnd(context, Epoch(0));
  EXPECT_THAT(
      RunFolder::Create(temp.path(), "r"),
      StatusIs(absl::StatusCode::kAlreadyExists,
               AllOf(HasSubstr(temp / "r"), HasSubstr("another name"))));
  EXPECT_THAT(Lines(temp / "r/history.jsonl"), SizeIs(1));
}

// Whoever is killed later has no result, least of all that of a training
// before.
TEST(RunFolderTest, WhoBeginsTakesTheOldResultAway) {
  TempFolder temp;
  const auto files = [&] {  // With their sizes.
    std::map<std::string, uintmax_t> files;
    for (const auto& entry : std::filesystem::directory_iterator(temp / "r")) {
      files[entry.path().filename().string()] = entry.file_size();
    }
    return files;
  };
  TrainContext context(1, 1);
  {
    const auto folder = Make(temp.path(), "r");
    folder->OnEpochEnd(context, Epoch(0));
    folder->OnTrainEnd(context, Result());
  }
  const std::map<std::string, uintmax_t> before = files();
  EXPECT_THAT(before, SizeIs(3));
  EXPECT_THAT(before, Contains(Key("result.json")));
  // Who finds that training cannot go on here leaves nothing behind.
  EXPECT_THAT(RunFolder::Create(temp.path(), "r"),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(RunFolder::Open(temp.path(), "r"), IsOk());
  EXPECT_EQ(files(), before);

  auto folder = RunFolder::Open(temp.path(), "r");
  ASSERT_THAT(folder, IsOk());
  ASSERT_THAT((*folder)->Begin(), IsOk());
  EXPECT_THAT(files(), Not(Contains(Key("result.json"))));
}

TEST(RunFolderTest, NamesStayWithinTheFolder) {
  TempFolder temp;
  for (const std::string& name : {std::string("a/b"), std::string(".."),
                                  std::string("."), std::string("a\0b", 3)}) {
    EXPECT_THAT(
        RunFolder::Create(temp.path(), name),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("without '/'")));
  }
  EXPECT_THAT(temp.List(), IsEmpty());
}

TEST(RunFolderTest, AFolderThatCannotBeMadeIsAnError) {
  TempFolder temp;
  ASSERT_THAT(WriteFileAtomically(temp / "file", "text"), IsOk());
  const absl::Status status = RunFolder::Create(temp / "file", "r").status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith("storage_path: "), HasSubstr(temp / "file")));
}

// A limit on the size of files stands for a full disk: it cuts a line, too.
TEST(RunFolderTest, WhatAFullDiskRefusesFollowsWhenThereIsRoomAgain) {
  TempFolder temp;
  const auto folder = Make(temp.path(), "r");
  TrainContext context(2, 4);
  folder->OnEpochEnd(context, Epoch(0));
  const std::string path = temp / "r/history.jsonl";
  const auto size = std::filesystem::file_size(path);

  auto* const handler = signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit full = {size + 10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  folder->OnEpochEnd(context, Epoch(1));
  folder->OnEpochEnd(context, Epoch(2));
  const auto cut_size = std::filesystem::file_size(path);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);

  EXPECT_EQ(cut_size, size + 10);
  EXPECT_THAT(context.warnings(),
              Contains(AllOf(HasSubstr("run folder is not complete"),
                             HasSubstr(path))));
  EXPECT_THAT(context.warnings(), SizeIs(::testing::Le(2)));
  folder->OnEpochEnd(context, Epoch(3));
  const std::vector<Json> lines = Lines(path);
  ASSERT_THAT(lines, SizeIs(4));
  for (int epoch = 0; epoch < 4; ++epoch) {
    EXPECT_EQ(lines[epoch]["epoch"], epoch);
  }
}

TEST(RunFolderTest, AResultThatCannotBeWrittenIsAWarning) {
  TempFolder temp;
  const auto folder = Make(temp.path(), "r");
  std::filesystem::remove_all(temp / "r");
  TrainContext context(1, 1);
  folder->OnTrainEnd(context, Result());
  EXPECT_THAT(context.warnings(), ElementsAre(HasSubstr("result.json")));
}

}  // namespace
}  // namespace miniray::train
