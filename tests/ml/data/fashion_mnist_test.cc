// Reads the data set that Debian's package dataset-fashion-mnist installs, the
// project's default.

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/data/dataset_loader.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::vector<int64_t> LabelCounts(const ImageDataset& data) {
  std::vector<int64_t> counts(data.num_classes());
  for (int64_t label : ValuesOf(data.labels)) ++counts[label];
  return counts;
}

TEST(FashionMnistTest, TrainingSplit) {
  ASSERT_OK_AND_ASSIGN(const ImageDataset data, LoadImageDataset({}));
  EXPECT_THAT(data.images.sizes(), ElementsAre(60000, 1, 28, 28));
  EXPECT_EQ(data.num_classes(), 10);
  EXPECT_THAT(LabelCounts(data), Each(6000));
  // The first image is an ankle boot, its first row is black.
  EXPECT_EQ(data.labels[0].item<int64_t>(), 9);
  EXPECT_EQ(data.class_names[9], "Ankle boot");
  EXPECT_EQ(BytesOf(data.images[0][0][0]), std::string(28, '\0'));
  // The published mean, 0.2860, says that pixels are where they should be.
  EXPECT_NEAR(data.images.to(at::kFloat).mean().item<double>() / 255, 0.2860,
              0.0001);
}

TEST(FashionMnistTest, TestSplit) {
  ASSERT_OK_AND_ASSIGN(const ImageDataset data,
                       LoadImageDataset({.split = "test"}));
  EXPECT_THAT(data.images.sizes(), ElementsAre(10000, 1, 28, 28));
  EXPECT_THAT(LabelCounts(data), Each(1000));
}

TEST(FashionMnistTest, AShardIsItsPartOfTheWhole) {
  ASSERT_OK_AND_ASSIGN(const ImageDataset all,
                       LoadImageDataset({.split = "test"}));
  ASSERT_OK_AND_ASSIGN(
      const ImageDataset part,
      LoadImageDataset(
          {.split = "test", .selection = {.shard_id = 3, .num_shards = 4}}));
  EXPECT_EQ(part.size(), 2500);
  EXPECT_TRUE(part.images.equal(all.images.narrow(0, 7500, 2500)));
  EXPECT_TRUE(part.labels.equal(all.labels.narrow(0, 7500, 2500)));
}

}  // namespace
}  // namespace miniray::ml
