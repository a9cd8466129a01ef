#include "ml/data/image_folder_reader.h"

#include <filesystem>
#include <map>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/data/batch_sampler.h"
#include "ml/data/dataset_loader.h"
#include "ml/data/image_dataset.h"
#include "ml/data/prefetcher.h"
#include "ml/image/png.h"
#include "tests/ml/data/data_testutil.h"
#include "tests/ml/image/jpeg_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kDataLoss;
using absl::StatusCode::kInvalidArgument;
using absl::StatusCode::kNotFound;
using ::testing::ElementsAre;

// Pictures of one shade each, by which they are told apart.
class ImageFolderTest : public ::testing::Test {
 protected:
  at::Tensor Shade(int shade, int64_t channels = 3) {
    return at::full({channels, 12, 16}, shade, at::kByte);
  }
  void AddPng(const std::string& path, int shade) {
    Prepare(path);
    const absl::Status status = WritePng(root_ + "/" + path, Shade(shade));
    ASSERT_TRUE(status.ok()) << status;
  }
  void Add(const std::string& path, const std::string& bytes) {
    Prepare(path);
    WriteTestFile(root_, path, bytes);
  }
  // Label by shade.
  static std::multimap<int, int64_t> Seen(const ImageDataset& dataset) {
    std::multimap<int, int64_t> seen;
    for (int64_t i = 0; i < dataset.size(); ++i) {
      const at::Tensor image = dataset.images[i].to(at::kInt);
      EXPECT_LE((image - image.min()).max().item<int>(), 2);
      seen.emplace(image.to(at::kFloat).mean().round().item<int>(),
                   dataset.labels[i].item<int64_t>());
    }
    return seen;
  }

  const std::string root_ = MakeTestFolder();

 private:
  void Prepare(const std::string& path) {
    std::filesystem::create_directories(
        std::filesystem::path(root_ + "/" + path).parent_path());
  }
};

TEST_F(ImageFolderTest, ReadsClassesOfPngAndJpeg) {
  AddPng("train/dog/1.png", 10);
  AddPng("train/dog/more/2.PNG", 20);
  Add("train/cat/3.jpg", EncodeJpeg(Shade(30)));
  Add("train/cat/4.JPEG", EncodeJpeg(Shade(40, 1)));
  Add("train/cat/notes.txt", "no picture");
  Add("train/cat/.hidden.png", "neither");
  Add("train/.cache/5.png", "nor that");
  Add("train/beside.png", "of no class");
  AddPng("test/dog/6.png", 60);
  ASSERT_OK_AND_ASSIGN(const ImageDataset train,
                       ReadImageFolder(root_, Split::kTrain, {.size = 8}));
  EXPECT_TRUE(ValidateImageDataset(train).ok());
  EXPECT_THAT(train.class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(train.images.sizes(), ElementsAre(4, 3, 8, 8));
  EXPECT_EQ(Seen(train),
            (std::multimap<int, int64_t>{{10, 1}, {20, 1}, {30, 0}, {40, 0}}));
  ASSERT_OK_AND_ASSIGN(const ImageDataset test,
                       ReadImageFolder(root_, Split::kTest, {.size = 8}));
  EXPECT_EQ(Seen(test), (std::multimap<int, int64_t>{{60, 0}}));
}

TEST_F(ImageFolderTest, WhatAPictureIsItsBytesSay) {
  AddPng("train/a/1.JPEG", 10);
  Add("train/a/2.png", EncodeJpeg(Shade(20)));
  ASSERT_OK_AND_ASSIGN(const ImageDataset train,
                       ReadImageFolder(root_, Split::kTrain, {.size = 8}));
  EXPECT_EQ(Seen(train), (std::multimap<int, int64_t>{{10, 0}, {20, 0}}));
}

TEST_F(ImageFolderTest, AHiddenLinkThatLeadsNowhereIsPassedOver) {
  AddPng("train/a/1.png", 10);
  // To itself: whether it is a folder cannot be told.
  std::filesystem::create_symlink(".loop", root_ + "/train/.loop");
  ASSERT_OK_AND_ASSIGN(const ImageDataset train,
                       ReadImageFolder(root_, Split::kTrain, {.size = 8}));
  EXPECT_EQ(Seen(train), (std::multimap<int, int64_t>{{10, 0}}));
}

TEST_F(ImageFolderTest, TheOtherLayouts) {
  AddPng("1.png", 10);
  AddPng("2.png", 20);
  ASSERT_OK_AND_ASSIGN(
      const ImageDataset all,
      ReadImageFolder(root_, Split::kTrain, {.size = 4, .channels = 1}));
  EXPECT_THAT(all.class_names, ElementsAre("images"));
  EXPECT_THAT(all.images.sizes(), ElementsAre(2, 1, 4, 4));
  AddPng("val/a/3.png", 30);
  ASSERT_OK_AND_ASSIGN(const ImageDataset val,
                       ReadImageFolder(root_, Split::kTest));
  EXPECT_THAT(val.images.sizes(), ElementsAre(1, 3, 64, 64));
}

TEST_F(ImageFolderTest, ShardsAreDisjointAndMixed) {
  for (int i = 0; i < 40; ++i) {
    AddPng(absl::StrCat(i < 20 ? "a/" : "b/", i, ".png"), 5 * i);
  }
  ASSERT_OK_AND_ASSIGN(const ImageDataset whole,
                       ReadImageFolder(root_, Split::kTrain, {.size = 4}));
  std::multimap<int, int64_t> together;
  for (int shard = 0; shard < 4; ++shard) {
    ASSERT_OK_AND_ASSIGN(const ImageDataset part,
                         ReadImageFolder(root_, Split::kTrain, {.size = 4},
                                         {.shard_id = shard, .num_shards = 4}));
    EXPECT_EQ(part.size(), 10);
    EXPECT_THAT(part.class_names, ElementsAre("a", "b"));
    // The order is fixed by the paths: each has both.
    EXPECT_GT(part.labels.sum().item<int64_t>(), 0);
    EXPECT_LT(part.labels.sum().item<int64_t>(), 10);
    EXPECT_TRUE(at::equal(part.images,
                          whole.images.slice(0, shard * 10, shard * 10 + 10)));
    together.merge(Seen(part));
  }
  EXPECT_EQ(together, Seen(whole));
  EXPECT_EQ(together.size(), 40);
}

TEST_F(ImageFolderTest, NamesTheFileThatCannotBeRead) {
  AddPng("a/1.png", 10);
  Add("b/2.png", "no PNG");
  ExpectError(ReadImageFolder(root_, Split::kTrain).status(), kDataLoss,
              {root_ + "/b/2.png"});
  // In a shard without it, it is not opened.
  int good = 0;
  for (int shard = 0; shard < 2; ++shard) {
    good += ReadImageFolder(root_, Split::kTrain, {},
                            {.shard_id = shard, .num_shards = 2})
                .ok();
  }
  EXPECT_EQ(good, 1);
}

TEST_F(ImageFolderTest, BatchesAreReadWhenTheyAreAskedFor) {
  for (int i = 0; i < 23; ++i) {
    AddPng(absl::StrCat(i < 12 ? "a/" : "b/", i, ".png"), 10 * i);
  }
  ASSERT_OK_AND_ASSIGN(const ImageDataset whole,
                       ReadImageFolder(root_, Split::kTrain, {.size = 4}));
  ASSERT_OK_AND_ASSIGN(const ImageFolder folder,
                       ImageFolder::Open(root_, Split::kTrain, {.size = 4}));
  EXPECT_EQ(folder.size(), 23);
  EXPECT_EQ(folder.class_names(), whole.class_names);
  EXPECT_EQ(folder.labels(), ValuesOf(whole.labels));
  ASSERT_OK_AND_ASSIGN(const BatchSampler sampler,
                       BatchSampler::Create(folder.size(), 5, 1, false));
  const EpochBatches batches = sampler.Epoch(0);
  for (const int threads : {1, 3}) {
    Prefetcher<ImageBatch> ahead(
        batches.size(), [&](int64_t b) { return folder.ReadBatch(batches[b]); },
        {.threads = threads});
    for (int64_t b = 0; b < batches.size(); ++b) {
      ASSERT_OK_AND_ASSIGN(const ImageBatch batch, ahead.Next());
      ASSERT_OK_AND_ASSIGN(const ImageBatch expected,
                           GatherBatch(whole, batches[b]));
      EXPECT_TRUE(at::equal(batch.images, expected.images));
      EXPECT_TRUE(at::equal(batch.labels, expected.labels));
    }
  }
  ExpectError(folder.ReadBatch({}).status(), kInvalidArgument,
              {"at least one"});
  ExpectError(folder.ReadBatch({3, 23}).status(), kInvalidArgument,
              {"index 23", "0 to 22"});
}

TEST_F(ImageFolderTest, ABadFileIsAnErrorOfItsBatch) {
  AddPng("a/1.png", 10);
  Add("b/2.png", "no PNG");
  ASSERT_OK_AND_ASSIGN(const ImageFolder folder,
                       ImageFolder::Open(root_, Split::kTrain, {.size = 4}));
  ASSERT_EQ(folder.size(), 2);
  for (int64_t i = 0; i < 2; ++i) {
    const absl::Status status = folder.ReadBatch({i}).status();
    if (folder.class_names()[folder.labels()[i]] == "a") {
      EXPECT_TRUE(status.ok()) << status;
    } else {
      ExpectError(status, kDataLoss, {root_ + "/b/2.png"});
    }
  }
}

TEST_F(ImageFolderTest, SaysWhatBelongsThere) {
  ExpectError(ReadImageFolder(root_ + "/none", Split::kTrain).status(),
              kNotFound, {root_ + "/none"});
  ExpectError(ReadImageFolder(root_, Split::kTrain).status(), kNotFound,
              {"no pictures", "a folder for each class"});
  ExpectError(ReadImageFolder(root_, Split::kTest).status(), kNotFound,
              {"no folder test or val"});
  AddPng("a/1.png", 10);
  for (const int64_t size : {0, 4097}) {
    ExpectError(ReadImageFolder(root_, Split::kTrain, {.size = size}).status(),
                kInvalidArgument, {"expected 1 to 4096"});
  }
  ExpectError(ReadImageFolder(root_, Split::kTrain, {.channels = 2}).status(),
              kInvalidArgument, {"2 channels"});
}

TEST_F(ImageFolderTest, IsADataSetByName) {
  AddPng("a/1.png", 10);
  ASSERT_OK_AND_ASSIGN(const ImageDataset dataset,
                       LoadImageDataset({.name = "image-folder",
                                         .data_dir = root_,
                                         .image_folder = {.size = 16}}));
  EXPECT_THAT(dataset.images.sizes(), ElementsAre(1, 3, 16, 16));
  ExpectError(LoadImageDataset({.name = "image-folder"}).status(),
              kInvalidArgument, {"image-folder", "needs data_dir"});
}

}  // namespace
}  // namespace miniray::ml
