#include "ml/classify/classifier_worker.h"

#include <filesystem>
#include <string>
#include <vector>

#include "ATen/ops/equal.h"
#include "ATen/ops/full.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/image/png.h"
#include "tests/ml/data/data_testutil.h"
#include "train/merge_metrics.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kFailedPrecondition;
using absl::StatusCode::kInvalidArgument;
using ::testing::Contains;
using ::testing::IsEmpty;

// Made-up images of 3 x 32 x 32.
ClassifierWorkerOptions Small(const std::string& network = "cnn") {
  return {.dataset = "synthetic",
          .limit = 60,
          .network = network,
          .hidden = 8,
          .device = "cpu",
          .batch_size = 10};
}

void ExpectSameWeights(const ClassifierWorker& a, const ClassifierWorker& b) {
  ASSERT_OK_AND_ASSIGN(const NamedTensors left, a.GetWeights());
  ASSERT_OK_AND_ASSIGN(const NamedTensors right, b.GetWeights());
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_TRUE(at::equal(left[i].second, right[i].second)) << left[i].first;
  }
}

TEST(ClassifierWorkerTest, NeedsDataFirst) {
  ClassifierWorker worker(Small());
  ExpectError(worker.TrainEpoch(0).status(), kFailedPrecondition,
              {"LoadDataShard"});
  ExpectError(worker.EvaluateShard(0, 1).status(), kFailedPrecondition,
              {"LoadDataShard"});
  ExpectError(worker.BufferNames().status(), kFailedPrecondition,
              {"LoadDataShard"});
  EXPECT_EQ(worker.GetProgress().epoch, train::Progress().epoch);
}

TEST(ClassifierWorkerTest, ShardsAreDealtAsTheTrainerSays) {
  for (const char* sharding : {"contiguous", "strided", "by_class"}) {
    int64_t images = 0;
    for (int shard = 0; shard < 4; ++shard) {
      ClassifierWorker worker(Small());
      train::Config config;
      config.Set("sharding", std::string(sharding));
      ASSERT_TRUE(worker.LoadDataShard(shard, 4, config).ok());
      images += *worker.NumSamples();
    }
    EXPECT_EQ(images, 60) << sharding;
  }
  train::Config config;
  config.Set("sharding", std::string("by_luck"));
  ExpectError(ClassifierWorker(Small()).LoadDataShard(0, 1, config),
              kInvalidArgument, {"by_luck"});
}

TEST(ClassifierWorkerTest, EvaluationOfShardsIsThatOfTheWhole) {
  ClassifierWorker worker(Small());
  ASSERT_TRUE(worker.LoadDataShard(0, 1, {}).ok());
  ASSERT_TRUE(worker.TrainEpoch(0).ok());
  ASSERT_OK_AND_ASSIGN(const train::Metrics whole, worker.EvaluateShard(0, 1));
  EXPECT_EQ(whole.at("samples"), 60);
  std::vector<train::Metrics> shards;
  for (int shard = 0; shard < 7; ++shard) {
    ASSERT_OK_AND_ASSIGN(train::Metrics part, worker.EvaluateShard(shard, 7));
    shards.push_back(std::move(part));
  }
  ASSERT_OK_AND_ASSIGN(const train::Metrics merged,
                       train::MergeEvaluation(shards));
  EXPECT_EQ(merged.at("accuracy"), whole.at("accuracy"));
  EXPECT_NEAR(merged.at("loss"), whole.at("loss"), 1e-5);
}

TEST(ClassifierWorkerTest, BatchNormHasBuffersThatTravel) {
  ClassifierWorker plain(Small());
  ASSERT_TRUE(plain.LoadDataShard(0, 1, {}).ok());
  EXPECT_THAT(*plain.BufferNames(), IsEmpty());

  ClassifierWorker one(Small("resnet20")), other(Small("resnet20"));
  ASSERT_TRUE(one.LoadDataShard(0, 2, {}).ok());
  ASSERT_TRUE(other.LoadDataShard(1, 2, {}).ok());
  ExpectSameWeights(one, other);  // The seed is the run's.
  EXPECT_THAT(*one.BufferNames(), Contains("block3.first_norm.running_mean"));
  ASSERT_TRUE(one.TrainEpoch(0).ok());
  ASSERT_TRUE(other.SetWeights(*one.LendWeights()).ok());
  ExpectSameWeights(one, other);
  ASSERT_OK_AND_ASSIGN(const train::Metrics a, one.EvaluateShard(0, 1));
  ASSERT_OK_AND_ASSIGN(const train::Metrics b, other.EvaluateShard(0, 1));
  EXPECT_EQ(a, b);
}

TEST(ClassifierWorkerTest, GoesOnFromACheckpoint) {
  ClassifierWorkerOptions options = Small();
  options.augment = true;
  ClassifierWorker one(options), other(options);
  ASSERT_TRUE(one.LoadDataShard(0, 2, {}).ok());
  ASSERT_TRUE(one.TrainEpoch(0).ok());
  ASSERT_OK_AND_ASSIGN(const train::CheckpointFiles files,
                       one.SaveCheckpoint());
  ASSERT_TRUE(one.TrainEpoch(1).ok());

  ASSERT_TRUE(other.LoadDataShard(0, 2, {}).ok());
  ASSERT_TRUE(other.LoadCheckpoint(files).ok());
  ASSERT_TRUE(other.TrainEpoch(1).ok());
  ExpectSameWeights(one, other);
}

TEST(ClassifierWorkerTest, PiecesOfAnEpochTrainTheSameAsTheWhole) {
  ClassifierWorkerOptions options = Small();
  options.augment = true;
  ClassifierWorker whole(options), pieces(options);
  ASSERT_TRUE(whole.LoadDataShard(0, 1, {}).ok());
  ASSERT_TRUE(pieces.LoadDataShard(0, 1, {}).ok());
  for (int epoch = 0; epoch < 2; ++epoch) {  // Of 6 batches.
    ASSERT_OK_AND_ASSIGN(const train::Metrics all, whole.TrainEpoch(epoch));
    double loss = 0;
    for (int64_t first = 0; first < 8; first += 4) {
      ASSERT_OK_AND_ASSIGN(const train::Metrics piece,
                           pieces.TrainSteps(epoch, first, 4));
      EXPECT_EQ(piece.at("steps"), first == 0 ? 4 : 2);
      EXPECT_EQ(piece.at("samples"), first == 0 ? 40 : 20);
      loss += piece.at("loss") * piece.at("samples");
    }
    EXPECT_NEAR(loss / 60, all.at("loss"), 1e-9);
    ExpectSameWeights(whole, pieces);
  }
  ASSERT_OK_AND_ASSIGN(const train::Metrics beyond, pieces.TrainSteps(2, 6, 4));
  EXPECT_EQ(beyond.at("steps"), 0);
  ExpectSameWeights(whole, pieces);
  ExpectError(pieces.TrainSteps(2, -1, 4).status(), kInvalidArgument, {"-1"});
}

TEST(ClassifierWorkerTest, PiecesAreMadeOfWholeStepsOfTheOptimizer) {
  ClassifierWorkerOptions options = Small("mlp");
  options.loop.accumulate = 4;
  ClassifierWorker whole(options), pieces(options);
  ASSERT_TRUE(whole.LoadDataShard(0, 1, {}).ok());
  ASSERT_TRUE(pieces.LoadDataShard(0, 1, {}).ok());
  ASSERT_TRUE(whole.TrainEpoch(0).ok());  // 6 batches: steps of 4 and of 2.
  ASSERT_TRUE(pieces.TrainSteps(0, 0, 4).ok());
  // Before a piece is cut to what the epoch has left.
  for (const int64_t count : {1, 2, 6}) {
    ExpectError(pieces.TrainSteps(0, 4, count).status(), kInvalidArgument,
                {"accumulate is 4"});
  }
  ASSERT_TRUE(pieces.TrainSteps(0, 4, 4).ok());
  ExpectSameWeights(whole, pieces);
}

// Writes 24 pictures of two classes, to train on.
std::string MakePictures() {
  const std::string root = MakeTestFolder();
  for (int i = 0; i < 24; ++i) {
    const std::string folder =
        absl::StrCat(root, "/train/", i % 2 == 0 ? "even" : "odd");
    std::filesystem::create_directories(folder);
    EXPECT_TRUE(WritePng(absl::StrCat(folder, "/", i, ".png"),
                         at::full({3, 8, 8}, 10 * i, at::kByte))
                    .ok());
  }
  return root;
}

TEST(ClassifierWorkerTest, PicturesThatStayOnTheDiskTrainTheSame) {
  ClassifierWorkerOptions options = Small();
  options.dataset = "image-folder";
  options.data_dir = MakePictures();
  options.evaluates = false;
  options.limit = 0;
  options.image_size = 8;
  options.batch_size = 4;
  options.augment = true;
  for (const char* sharding : {"contiguous", "by_class", "shuffled"}) {
    train::Config config;
    config.Set("sharding", std::string(sharding));
    options.lazy = false;
    ClassifierWorker in_memory(options);
    options.lazy = true;
    ClassifierWorker on_disk(options);
    for (ClassifierWorker* worker : {&in_memory, &on_disk}) {
      ASSERT_EQ(worker->LoadDataShard(1, 2, config), absl::OkStatus());
      EXPECT_EQ(*worker->NumSamples(), 12);
      for (int epoch = 0; epoch < 2; ++epoch) {
        ASSERT_TRUE(worker->TrainEpoch(epoch).ok());
      }
    }
    ExpectSameWeights(in_memory, on_disk);
    EXPECT_TRUE(on_disk.ModelFile().ok());
  }
}

TEST(ClassifierWorkerTest, APictureThatCannotBeReadIsAnErrorOfTheEpoch) {
  ClassifierWorkerOptions options = Small();
  options.dataset = "image-folder";
  options.data_dir = MakePictures();
  options.evaluates = false;
  options.limit = 0;
  options.image_size = 8;
  options.batch_size = 4;
  options.lazy = true;
  ClassifierWorker worker(options);
  ASSERT_EQ(worker.LoadDataShard(0, 1, {}), absl::OkStatus());
  ASSERT_TRUE(worker.TrainEpoch(0).ok());
  const std::string bad =
      WriteTestFile(options.data_dir + "/train/even", "4.png", "no PNG");
  ExpectError(worker.TrainEpoch(1).status(), absl::StatusCode::kDataLoss,
              {bad});
}

TEST(ClassifierWorkerTest, ClassesOfTestImagesGoByTheirNames) {
  ClassifierWorkerOptions options = Small("mlp");
  options.dataset = "image-folder";
  options.data_dir = MakeTestFolder();
  options.limit = 0;
  options.image_size = 8;
  options.batch_size = 3;
  const auto add = [&](const std::string& folder) {
    const std::string path = absl::StrCat(options.data_dir, "/", folder);
    std::filesystem::create_directories(path);
    EXPECT_TRUE(
        WritePng(path + "/1.png", at::full({3, 8, 8}, 100, at::kByte)).ok());
  };
  for (const char* folder : {"train/a", "train/b", "train/c", "test/c"}) {
    add(folder);
  }
  ClassifierWorker worker(options);
  ASSERT_EQ(worker.LoadDataShard(0, 1, {}), absl::OkStatus());
  // Whatever it sees is a "c" to it, which is the third class to train on and
  // the first of the test.
  ASSERT_OK_AND_ASSIGN(NamedTensors weights, worker.GetWeights());
  for (auto& [name, tensor] : weights) {
    tensor = at::full(tensor.sizes(), 0, at::kFloat);
    if (name == "output.bias") tensor.select(0, 2).fill_(10);
  }
  ASSERT_EQ(worker.SetWeights(ReadOnly<NamedTensors>{weights}),
            absl::OkStatus());
  ASSERT_OK_AND_ASSIGN(const train::Metrics metrics,
                       worker.EvaluateShard(0, 1));
  EXPECT_EQ(metrics.at("accuracy"), 1);
  EXPECT_EQ(metrics.at("samples"), 1);

  // There is no second one for a second worker.
  ASSERT_OK_AND_ASSIGN(const train::Metrics none, worker.EvaluateShard(1, 2));
  ASSERT_OK_AND_ASSIGN(const train::Metrics first, worker.EvaluateShard(0, 2));
  EXPECT_EQ(none, (train::Metrics{{"samples", 0}}));
  ASSERT_OK_AND_ASSIGN(const train::Metrics merged,
                       train::MergeEvaluation({first, none}));
  EXPECT_EQ(merged, metrics);

  add("test/d");
  for (const absl::Status& status :
       {worker.EvaluateShard(0, 1).status(),
        ClassifierWorker(options).LoadDataShard(0, 1, {})}) {
    ExpectError(status, kInvalidArgument,
                {"the class 'd'", "none of it to train on"});
  }
}

TEST(ClassifierWorkerTest, WhatCannotBeTestedIsKnownBeforeTraining) {
  ClassifierWorkerOptions options = Small("mlp");
  options.dataset = "image-folder";
  options.data_dir = MakePictures();
  options.image_size = 8;
  ExpectError(ClassifierWorker(options).LoadDataShard(0, 1, {}),
              absl::StatusCode::kNotFound,
              {"images to test on", "--evaluate=false", options.data_dir});
  options.evaluates = false;
  ClassifierWorker worker(options);
  ASSERT_EQ(worker.LoadDataShard(0, 1, {}), absl::OkStatus());
  EXPECT_EQ(worker.TrainEpoch(0).status(), absl::OkStatus());
}

TEST(ClassifierWorkerTest, OneClassIsNothingToTellApart) {
  ClassifierWorkerOptions options = Small("mlp");
  options.dataset = "image-folder";
  options.data_dir = MakeTestFolder();
  options.image_size = 8;
  options.evaluates = false;
  std::filesystem::create_directories(options.data_dir + "/train");
  ASSERT_TRUE(WritePng(options.data_dir + "/train/1.png",
                       at::full({3, 8, 8}, 100, at::kByte))
                  .ok());
  ExpectError(ClassifierWorker(options).LoadDataShard(0, 1, {}),
              kInvalidArgument, {"of one class, 'images'"});
}

TEST(ClassifierWorkerTest, AnEpochWithoutAFiniteLossIsAnError) {
  ClassifierWorkerOptions options = Small("mlp");
  options.lr = 1e30;
  options.loop.on_non_finite = train::OnNonFinite::kSkip;
  ClassifierWorker worker(options);
  ASSERT_EQ(worker.LoadDataShard(0, 1, {}), absl::OkStatus());
  absl::Status status;
  for (int epoch = 0; epoch < 3 && status.ok(); ++epoch) {
    status = worker.TrainEpoch(epoch).status();
  }
  ExpectError(status, absl::StatusCode::kAborted,
              {"no batch had a finite loss", "1e+30"});

  // Of an epoch in pieces, each of which may lack one: with its last batch.
  ClassifierWorker pieces(options);
  ASSERT_EQ(pieces.LoadDataShard(0, 1, {}), absl::OkStatus());
  status = absl::OkStatus();
  int64_t first = 0;
  for (int epoch = 0; epoch < 3 && status.ok(); ++epoch) {
    for (first = 0; first < 6 && status.ok(); first += 3) {
      status = pieces.TrainSteps(epoch, first, 3).status();
    }
  }
  ExpectError(status, absl::StatusCode::kAborted,
              {"no batch had a finite loss", "1e+30"});
  EXPECT_EQ(first, 6);
}

TEST(ClassifierWorkerTest, OnlyFoldersOfPicturesStayOnTheDisk) {
  ClassifierWorkerOptions options = Small();
  options.lazy = true;
  ExpectError(ClassifierWorker(options).LoadDataShard(0, 1, {}),
              kInvalidArgument, {"image-folder", "'synthetic'"});
  // What is missing is said, lazy or not.
  options.dataset = "image-folder";
  for (const bool lazy : {true, false}) {
    options.lazy = lazy;
    ExpectError(ClassifierWorker(options).LoadDataShard(0, 1, {}),
                kInvalidArgument, {"'image-folder': needs data_dir, a folder"});
  }
}

TEST(ClassifierWorkerTest, AugmentationChangesWhatIsTrained) {
  ClassifierWorkerOptions options = Small();
  ClassifierWorker plain(options);
  options.augment = true;
  ClassifierWorker augmented(options);
  for (ClassifierWorker* worker : {&plain, &augmented}) {
    ASSERT_TRUE(worker->LoadDataShard(0, 1, {}).ok());
    ASSERT_TRUE(worker->TrainEpoch(0).ok());
  }
  EXPECT_FALSE(at::equal((*plain.GetWeights())[0].second,
                         (*augmented.GetWeights())[0].second));
}

}  // namespace
}  // namespace miniray::ml
