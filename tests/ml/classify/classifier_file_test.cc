#include "ml/classify/classifier_file.h"

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "gtest/gtest.h"
#include "ml/classify/classifier_worker.h"
#include "ml/data/dataset_loader.h"
#include "runtime/base/status_macros.h"
#include "tests/ml/data/data_testutil.h"
#include "torch/serialize/archive.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kDataLoss;
using absl::StatusCode::kInvalidArgument;

ClassifierWorkerOptions Small(const std::string& network) {
  return {.dataset = "synthetic",
          .limit = 40,
          .network = network,
          .hidden = 8,
          .device = "cpu",
          .batch_size = 10};
}

// Trains a moment, so that running statistics are no longer those of the start.
absl::StatusOr<std::string> TrainedFile(ClassifierWorker* worker) {
  MR_RETURN_IF_ERROR(worker->LoadDataShard(0, 1, {}));
  MR_RETURN_IF_ERROR(worker->TrainEpoch(0).status());
  return worker->ModelFile();
}

TEST(ClassifierFileTest, WhatIsReadIsWhatWasSaved) {
  ASSERT_OK_AND_ASSIGN(
      const ImageDataset test,
      LoadImageDataset(
          {.name = "synthetic", .split = "test", .selection = {.limit = 12}}));
  for (const char* network : {"mlp", "cnn", "resnet20"}) {
    ClassifierWorker worker(Small(network));
    ASSERT_OK_AND_ASSIGN(const std::string bytes, TrainedFile(&worker));
    ASSERT_OK_AND_ASSIGN(const SavedClassifier saved,
                         ParseClassifier(bytes, "file.pt"));
    EXPECT_EQ(saved.network, network);
    EXPECT_EQ(saved.dataset, "synthetic");
    EXPECT_EQ(saved.channels, 3);
    EXPECT_EQ(saved.height, 32);
    EXPECT_EQ(saved.width, 32);
    EXPECT_EQ(saved.hidden, 8);
    EXPECT_EQ(saved.classes, 10);
    ASSERT_OK_AND_ASSIGN(const NamedTensors weights, worker.GetWeights());
    ASSERT_EQ(saved.weights.size(), weights.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(saved.weights[i].first, weights[i].first);
      EXPECT_TRUE(at::equal(saved.weights[i].second, weights[i].second));
    }
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Classifier> classifier,
                         MakeClassifier(saved, "cpu"));
    ASSERT_OK_AND_ASSIGN(const at::Tensor features,
                         classifier->Features(test.images));
    EXPECT_EQ(features.size(0), 12);
    EXPECT_EQ(features.size(1), network == std::string("resnet20") ? 64 : 8);
    EXPECT_FALSE(features.requires_grad());
    // Of an image, not of the batch that it comes in.
    ASSERT_OK_AND_ASSIGN(const at::Tensor one,
                         classifier->Features(test.images.slice(0, 3, 4)));
    EXPECT_TRUE(at::allclose(one[0], features[3], 1e-4, 1e-5));
  }
}

TEST(ClassifierFileTest, FeaturesNeedTheClassifiersShape) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Classifier> classifier,
                       Classifier::Create({.network = "cnn", .device = "cpu"}));
  ExpectError(
      classifier->Features(at::zeros({2, 3, 28, 28}, at::kByte)).status(),
      kInvalidArgument, {"[2, 3, 28, 28]", "uint8 [B, 1, 28, 28]"});
  ExpectError(classifier->Features(at::zeros({2, 1, 28, 28})).status(),
              kInvalidArgument, {"Float"});
}

TEST(ClassifierFileTest, DamageIsNoticed) {
  ClassifierWorker worker(Small("cnn"));
  ASSERT_OK_AND_ASSIGN(const std::string bytes, TrainedFile(&worker));
  EXPECT_FALSE(ParseClassifier(bytes.substr(0, 1000), "file.pt").ok());
  std::string flipped = bytes;
  flipped[flipped.size() / 2] ^= 1;  // In the weights.
  ExpectError(ParseClassifier(flipped, "file.pt").status(), kDataLoss,
              {"file.pt: not a classifier that `classification` saved"});
  ExpectError(ParseClassifier("text", "file.pt").status(), kInvalidArgument,
              {"file.pt"});
}

TEST(ClassifierFileTest, ASmallFileDoesNotTakeMuchMemory) {
  // Sizes of networks of gigabytes, whose weights are not there.
  SavedClassifier saved = {.network = "mlp",
                           .channels = 1,
                           .height = 1024,
                           .width = 1024,
                           .hidden = 65536,
                           .classes = 2,
                           .dataset = "x",
                           .weights = {{"hidden.weight", at::zeros({3})}}};
  ASSERT_OK_AND_ASSIGN(const std::string bytes, SerializeClassifier(saved));
  ASSERT_OK_AND_ASSIGN(const SavedClassifier parsed,
                       ParseClassifier(bytes, "x"));
  ExpectError(MakeClassifier(parsed, "cpu").status(), kInvalidArgument,
              {"there are 3 weights; a mlp of these sizes has more"});
  saved.network = "cnn";
  ExpectError(MakeClassifier(saved, "cpu").status(), kInvalidArgument,
              {"there are 3 weights; a cnn of these sizes has more"});
  // The last layer alone.
  saved.network = "mlp";
  saved.height = saved.width = 1;
  saved.classes = 65536;
  ExpectError(MakeClassifier(saved, "cpu").status(), kInvalidArgument,
              {"there are 3 weights"});
  // The first one alone.
  saved.channels = 65536;
  saved.height = saved.width = 4;
  saved.hidden = 1;
  saved.classes = 2;
  for (const char* network : {"cnn", "resnet20"}) {
    saved.network = network;
    ExpectError(MakeClassifier(saved, "cpu").status(), kInvalidArgument,
                {"there are 3 weights; a ", network, " of these sizes"});
  }
}

// The bytes of a file with such weights.
std::string FileOf(const std::vector<std::string>& names,
                   const c10::List<at::Tensor>& tensors,
                   const std::string& format = "miniray.classifier",
                   const std::string& dataset = "x") {
  torch::serialize::OutputArchive archive;
  archive.write("format", c10::IValue(format));
  archive.write("version", c10::IValue(int64_t{1}));
  archive.write("network", c10::IValue("cnn"));
  archive.write("image_shape", c10::IValue(std::vector<int64_t>{1, 8, 8}));
  archive.write("hidden", c10::IValue(int64_t{8}));
  archive.write("classes", c10::IValue(int64_t{3}));
  archive.write("dataset", c10::IValue(dataset));
  archive.write("names", c10::IValue(names));
  archive.write("weights", c10::IValue(tensors));
  std::ostringstream bytes;
  archive.save_to(bytes);
  return std::move(bytes).str();
}

TEST(ClassifierFileTest, WeightsAreNotMoreThanTheFile) {
  // Eight weights that are one piece of memory, which is in the file once.
  const at::Tensor shared = at::zeros({100000});
  std::vector<std::string> names;
  c10::List<at::Tensor> tensors;
  for (int i = 0; i < 8; ++i) {
    names.push_back(std::to_string(i));
    tensors.push_back(shared);
  }
  const std::string bytes = FileOf(names, tensors);
  ASSERT_LT(bytes.size(), 500000u);
  ExpectError(ParseClassifier(bytes, "file.pt").status(), kDataLoss,
              {"file.pt", "its weights are more than the file"});
}

TEST(ClassifierFileTest, WhatAFileSaysOfItselfIsShortAndLegible) {
  c10::List<at::Tensor> tensors;
  tensors.push_back(at::zeros({1}));
  ExpectError(
      ParseClassifier(FileOf({std::string(257, 'n')}, tensors), "f").status(),
      kDataLoss, {"its weight 0 is damaged"});
  ASSERT_OK_AND_ASSIGN(
      const SavedClassifier saved,
      ParseClassifier(FileOf({"n"}, tensors, "miniray.classifier",
                             "\x1b[31m" + std::string(1000, 'd')),
                      "f"));
  // Of the first 256 bytes, one becomes four.
  EXPECT_EQ(saved.dataset, "\\x1b[31m" + std::string(251, 'd'));
  ExpectError(ParseClassifier(FileOf({"n"}, tensors, "\a", "x"), "f").status(),
              kInvalidArgument,
              {"it holds '\\x07'; expected 'miniray.classifier'"});
}

TEST(ClassifierFileTest, WeightsOfAnotherNetworkDoNotFit) {
  ClassifierWorker worker(Small("cnn"));
  ASSERT_OK_AND_ASSIGN(const std::string bytes, TrainedFile(&worker));
  ASSERT_OK_AND_ASSIGN(SavedClassifier saved, ParseClassifier(bytes, "x"));
  saved.network = "mlp";
  EXPECT_EQ(MakeClassifier(saved, "cpu").status().code(), kInvalidArgument);
  saved.network = "vgg";
  ExpectError(MakeClassifier(saved, "cpu").status(), kInvalidArgument,
              {"'vgg'"});
}

}  // namespace
}  // namespace miniray::ml
