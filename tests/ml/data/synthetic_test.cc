#include "ml/data/synthetic.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kInvalidArgument;
using ::testing::ElementsAre;

TEST(SyntheticTest, HasTheShapeAskedFor) {
  ASSERT_OK_AND_ASSIGN(const ImageDataset data,
                       MakeSyntheticDataset({.count = 7,
                                             .channels = 2,
                                             .height = 5,
                                             .width = 6,
                                             .num_classes = 3},
                                            Split::kTrain));
  EXPECT_THAT(data.images.sizes(), ElementsAre(7, 2, 5, 6));
  EXPECT_THAT(ValuesOf(data.labels), ElementsAre(0, 1, 2, 0, 1, 2, 0));
  EXPECT_THAT(data.class_names, ElementsAre("class 0", "class 1", "class 2"));
  EXPECT_TRUE(ValidateImageDataset(data).ok());
}

TEST(SyntheticTest, DependsOnSeedAndSplitOnly) {
  const SyntheticOptions options = {.count = 8, .seed = 5};
  ASSERT_OK_AND_ASSIGN(const ImageDataset data,
                       MakeSyntheticDataset(options, Split::kTrain));
  ASSERT_OK_AND_ASSIGN(const ImageDataset again,
                       MakeSyntheticDataset(options, Split::kTrain));
  ASSERT_OK_AND_ASSIGN(const ImageDataset test,
                       MakeSyntheticDataset(options, Split::kTest));
  ASSERT_OK_AND_ASSIGN(
      const ImageDataset other,
      MakeSyntheticDataset({.count = 8, .seed = 6}, Split::kTrain));
  EXPECT_TRUE(BytesOf(data.images) == BytesOf(again.images));
  EXPECT_FALSE(BytesOf(data.images) == BytesOf(test.images));
  EXPECT_FALSE(BytesOf(data.images) == BytesOf(other.images));
}

TEST(SyntheticTest, ShardsTogetherAreTheWhole) {
  const SyntheticOptions options = {.count = 10};
  ASSERT_OK_AND_ASSIGN(const ImageDataset all,
                       MakeSyntheticDataset(options, Split::kTrain));
  std::string bytes;
  std::vector<int64_t> labels;
  for (int shard_id = 0; shard_id < 3; ++shard_id) {
    ASSERT_OK_AND_ASSIGN(
        const ImageDataset part,
        MakeSyntheticDataset(options, Split::kTrain,
                             {.shard_id = shard_id, .num_shards = 3}));
    bytes += BytesOf(part.images);
    for (int64_t label : ValuesOf(part.labels)) labels.push_back(label);
  }
  EXPECT_TRUE(bytes == BytesOf(all.images));
  EXPECT_EQ(labels, ValuesOf(all.labels));
}

// A model has something to learn: the place of the bright tile is the class.
TEST(SyntheticTest, ImagesShowTheirClass) {
  ASSERT_OK_AND_ASSIGN(const ImageDataset data,
                       MakeSyntheticDataset({.count = 40}, Split::kTest));
  constexpr int kSide = 4;  // Ten classes take a raster of 4 x 4.
  for (int64_t i = 0; i < data.size(); ++i) {
    int64_t brightest = -1;
    double most = -1;
    for (int64_t place = 0; place < kSide * kSide; ++place) {
      const double mean = data.images[i]
                              .narrow(1, place / kSide * 8, 8)
                              .narrow(2, place % kSide * 8, 8)
                              .to(at::kFloat)
                              .mean()
                              .item<double>();
      if (mean > most) {
        most = mean;
        brightest = place;
      }
    }
    EXPECT_EQ(brightest, i % 10);
  }
}

// Computed by a separate program with the same integer arithmetic.
TEST(SyntheticTest, PixelsAreTheSameOnEveryPlatform) {
  ASSERT_OK_AND_ASSIGN(const ImageDataset data,
                       MakeSyntheticDataset({.count = 16}, Split::kTrain));
  uint64_t hash = 0;
  for (unsigned char byte : BytesOf(data.images)) hash = hash * 31 + byte;
  EXPECT_EQ(hash, 893905581181090142u);
}

TEST(SyntheticTest, MakesTinyImages) {
  ASSERT_OK_AND_ASSIGN(
      const ImageDataset data,
      MakeSyntheticDataset(
          {.count = 20, .channels = 1, .height = 1, .width = 1},
          Split::kTrain));
  EXPECT_EQ(data.size(), 20);
}

TEST(SyntheticTest, RejectsBadOptions) {
  ExpectError(MakeSyntheticDataset({.count = 0}, Split::kTrain).status(),
              kInvalidArgument, {"count is 0"});
  ExpectError(MakeSyntheticDataset({.channels = -1}, Split::kTrain).status(),
              kInvalidArgument, {"channels is -1"});
  ExpectError(MakeSyntheticDataset({.height = 0}, Split::kTrain).status(),
              kInvalidArgument, {"height is 0"});
  ExpectError(
      MakeSyntheticDataset({.width = INT64_MAX}, Split::kTrain).status(),
      kInvalidArgument, {"width is 9223372036854775807"});
  ExpectError(MakeSyntheticDataset({.num_classes = 0}, Split::kTrain).status(),
              kInvalidArgument, {"num_classes is 0"});
  ExpectError(
      MakeSyntheticDataset({.count = 1 << 30, .height = 1 << 20}, Split::kTrain)
          .status(),
      kInvalidArgument, {"[1073741824, 3, 1048576, 32]"});
  ExpectError(MakeSyntheticDataset({.count = 4}, Split::kTrain,
                                   {.shard_id = 5, .num_shards = 4})
                  .status(),
              kInvalidArgument, {"shard_id is 5"});
}

}  // namespace
}  // namespace miniray::ml
