#include "ml/data/dataset_loader.h"

#include "ATen/ops/zeros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kAlreadyExists;
using absl::StatusCode::kDataLoss;
using absl::StatusCode::kInvalidArgument;
using absl::StatusCode::kNotFound;
using ::testing::Contains;
using ::testing::ElementsAre;

void WriteMnistLike(const std::string& folder, const std::string& part,
                    uint32_t count) {
  WriteTestFile(folder, part + "-images-idx3-ubyte",
                IdxHeader({count, 2, 2}) + CountingBytes(count * 4));
  WriteTestFile(folder, part + "-labels-idx1-ubyte.gz",
                Gzip(IdxHeader({count}) + std::string(count, '\x09')));
}

TEST(LoadImageDatasetTest, UnknownNameListsTheKnownOnes) {
  ExpectError(LoadImageDataset({.name = "imagenet"}).status(), kInvalidArgument,
              {"'imagenet'", "cifar10, fashion-mnist, image-folder, mnist",
               "synthetic"});
}

TEST(LoadImageDatasetTest, RejectsAnUnknownSplit) {
  ExpectError(
      LoadImageDataset({.name = "synthetic", .split = "validation"}).status(),
      kInvalidArgument, {"'synthetic'", "'validation'", "'train' or 'test'"});
}

TEST(LoadImageDatasetTest, LoadsSynthetic) {
  ASSERT_OK_AND_ASSIGN(
      const ImageDataset data,
      LoadImageDataset({.name = "synthetic",
                        .split = "test",
                        .selection = {.limit = 6, .num_shards = 2},
                        .synthetic = {.count = 12, .height = 8}}));
  EXPECT_THAT(data.images.sizes(), ElementsAre(3, 3, 8, 32));
}

TEST(LoadImageDatasetTest, LoadsMnistPlainAndGzip) {
  const std::string folder = MakeTestFolder();
  WriteMnistLike(folder, "train", 6);
  WriteMnistLike(folder, "t10k", 3);
  for (const char* name : {"mnist", "fashion-mnist"}) {
    ASSERT_OK_AND_ASSIGN(const ImageDataset train,
                         LoadImageDataset({.name = name, .data_dir = folder}));
    EXPECT_THAT(train.images.sizes(), ElementsAre(6, 1, 2, 2));
    EXPECT_EQ(train.num_classes(), 10);
    ASSERT_OK_AND_ASSIGN(
        const ImageDataset test,
        LoadImageDataset({.name = name,
                          .data_dir = folder,
                          .split = "test",
                          .selection = {.shard_id = 2, .num_shards = 3}}));
    EXPECT_EQ(test.size(), 1);
    EXPECT_EQ(BytesOf(test.images), CountingBytes(12).substr(8));
  }
}

TEST(LoadImageDatasetTest, LoadsCifar10) {
  const std::string folder = MakeTestFolder();
  WriteTestFile(folder, "test_batch.bin", std::string(2 * 3073, '\x05'));
  ASSERT_OK_AND_ASSIGN(
      const ImageDataset data,
      LoadImageDataset(
          {.name = "cifar10", .data_dir = folder, .split = "test"}));
  EXPECT_THAT(ValuesOf(data.labels), ElementsAre(5, 5));
  EXPECT_EQ(data.class_names[5], "dog");
}

TEST(LoadImageDatasetTest, AsksForADataDir) {
  ExpectError(LoadImageDataset({.name = "mnist"}).status(), kInvalidArgument,
              {"'mnist'", "data_dir", "train-images-idx3-ubyte",
               "t10k-labels-idx1-ubyte"});
  ExpectError(LoadImageDataset({.name = "cifar10"}).status(), kInvalidArgument,
              {"'cifar10'", "data_dir", "data_batch_1.bin", "test_batch.bin"});
}

TEST(LoadImageDatasetTest, SaysHowToGetMissingFiles) {
  const std::string folder = MakeTestFolder();
  ExpectError(
      LoadImageDataset({.name = "fashion-mnist", .data_dir = folder}).status(),
      kNotFound,
      {"'fashion-mnist'", folder, "train-images-idx3-ubyte",
       "apt-get install dataset-fashion-mnist"});
  ExpectError(
      LoadImageDataset({.name = "mnist", .data_dir = folder, .split = "test"})
          .status(),
      kNotFound, {"'mnist'", folder, "t10k-images-idx3-ubyte"});
  ExpectError(
      LoadImageDataset({.name = "cifar10", .data_dir = folder}).status(),
      kNotFound, {"'cifar10'", folder, "data_batch_1.bin"});
}

TEST(LoadImageDatasetTest, PassesOnTheReadersErrors) {
  const std::string folder = MakeTestFolder();
  WriteMnistLike(folder, "train", 6);
  const std::string path =
      WriteTestFile(folder, "train-images-idx3-ubyte", "broken file");
  ExpectError(LoadImageDataset({.name = "mnist", .data_dir = folder}).status(),
              kDataLoss, {"'mnist'", path, "at byte 0"});
  ExpectError(LoadImageDataset({.name = "synthetic",
                                .selection = {.shard_id = 3, .num_shards = 3}})
                  .status(),
              kInvalidArgument, {"'synthetic'", "shard_id is 3"});
}

absl::StatusOr<ImageDataset> ReadBlack(const DatasetOptions& options,
                                       Split split) {
  ImageDataset data;
  data.images = at::zeros({split == Split::kTrain ? 4 : 2, 1, 2, 2}, at::kByte);
  data.labels = at::zeros({data.images.size(0)}, at::kLong);
  data.class_names = {options.data_dir};
  return data;
}

const DatasetRegistrar kBlack("black", &ReadBlack);

TEST(RegisterDatasetTest, MakesAReaderAvailable) {
  EXPECT_THAT(RegisteredDatasets(), Contains("black"));
  ASSERT_OK_AND_ASSIGN(
      const ImageDataset data,
      LoadImageDataset({.name = "black", .data_dir = "d", .split = "test"}));
  EXPECT_EQ(data.size(), 2);
  EXPECT_THAT(data.class_names, ElementsAre("d"));
}

TEST(RegisterDatasetTest, KeepsTheFirstOfAName) {
  ExpectError(RegisterDataset("black", &ReadBlack), kAlreadyExists,
              {"'black'"});
  const DatasetRegistrar second(
      "black",
      [](const DatasetOptions&, Split) -> absl::StatusOr<ImageDataset> {
        return absl::InternalError("the second reader");
      });
  EXPECT_TRUE(LoadImageDataset({.name = "black"}).ok());
}

TEST(RegisterDatasetTest, RejectsEmptyNamesAndReaders) {
  ExpectError(RegisterDataset("", &ReadBlack), kInvalidArgument, {"name"});
  ExpectError(RegisterDataset("nothing", nullptr), kInvalidArgument,
              {"'nothing'", "reader"});
}

TEST(RegisterDatasetTest, ChecksWhatAReaderReturns) {
  ASSERT_TRUE(RegisterDataset("unlabelled", [](const DatasetOptions& options,
                                               Split split) {
                auto data = ReadBlack(options, split);
                data->labels = at::Tensor();
                return data;
              }).ok());
  ExpectError(LoadImageDataset({.name = "unlabelled"}).status(),
              kInvalidArgument, {"'unlabelled'", "labels are an undefined"});
}

}  // namespace
}  // namespace miniray::ml
