#include "ml/data/image_dataset.h"

#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kInvalidArgument;
using ::testing::ElementsAre;

// Four images [1, 2, 3] with bytes 0, 1, 2, ... and labels 0, 1, 0, 1.
ImageDataset SmallDataset() {
  ImageDataset dataset;
  dataset.images = at::arange(24, at::kByte).view({4, 1, 2, 3});
  dataset.labels = at::arange(4, at::kLong).remainder(2);
  dataset.class_names = {"even", "odd"};
  return dataset;
}

TEST(ImageDatasetTest, NamesItsSizes) {
  const ImageDataset dataset = SmallDataset();
  EXPECT_EQ(dataset.size(), 4);
  EXPECT_EQ(dataset.channels(), 1);
  EXPECT_EQ(dataset.height(), 2);
  EXPECT_EQ(dataset.width(), 3);
  EXPECT_EQ(dataset.num_classes(), 2);
  EXPECT_TRUE(ValidateImageDataset(dataset).ok());
}

TEST(ImageDatasetTest, ValidationNamesTheFieldAndWhatItIs) {
  ImageDataset dataset = SmallDataset();
  dataset.images = at::Tensor();
  ExpectError(ValidateImageDataset(dataset), kInvalidArgument,
              {"images are an undefined tensor"});
  dataset.images = SmallDataset().images.to(at::kFloat);
  ExpectError(ValidateImageDataset(dataset), kInvalidArgument,
              {"images are Float [4, 1, 2, 3]", "uint8"});
  dataset.images = SmallDataset().images.view({4, 6});
  ExpectError(ValidateImageDataset(dataset), kInvalidArgument,
              {"images are Byte [4, 6]", "[N, C, H, W]"});
  dataset.images = SmallDataset().images.transpose(2, 3);
  ExpectError(ValidateImageDataset(dataset), kInvalidArgument,
              {"Byte [4, 1, 3, 2], not contiguous"});
  dataset.images = at::zeros({0, 1, 2, 3}, at::kByte);
  ExpectError(ValidateImageDataset(dataset), kInvalidArgument,
              {"images are Byte [0, 1, 2, 3]"});

  dataset = SmallDataset();
  dataset.labels = at::Tensor();
  ExpectError(ValidateImageDataset(dataset), kInvalidArgument,
              {"labels are an undefined tensor"});
  dataset.labels = at::zeros({4}, at::kInt);
  ExpectError(ValidateImageDataset(dataset), kInvalidArgument,
              {"labels are Int [4]", "int64 [4]"});
  dataset.labels = at::zeros({3}, at::kLong);
  ExpectError(ValidateImageDataset(dataset), kInvalidArgument,
              {"labels are Long [3]", "int64 [4]"});
  dataset.labels = at::zeros({4, 1}, at::kLong);
  ExpectError(ValidateImageDataset(dataset), kInvalidArgument,
              {"labels are Long [4, 1]"});
  dataset.labels = at::arange(4, at::kLong);
  ExpectError(ValidateImageDataset(dataset), kInvalidArgument,
              {"label 2 is 2", "0 to 1"});
  dataset.labels = at::arange(4, at::kLong).sub(3);
  ExpectError(ValidateImageDataset(dataset), kInvalidArgument,
              {"label 0 is -3"});
}

TEST(GatherBatchTest, CopiesInTheOrderOfTheIndices) {
  const ImageDataset dataset = SmallDataset();
  ASSERT_OK_AND_ASSIGN(const ImageBatch batch, GatherBatch(dataset, {3, 0, 3}));
  EXPECT_THAT(batch.images.sizes(), ElementsAre(3, 1, 2, 3));
  EXPECT_EQ(BytesOf(batch.images),
            std::string("\x12\x13\x14\x15\x16\x17\x00\x01\x02\x03\x04\x05"
                        "\x12\x13\x14\x15\x16\x17",
                        18));
  EXPECT_THAT(ValuesOf(batch.labels), ElementsAre(1, 0, 1));
  batch.images.zero_();
  EXPECT_EQ(BytesOf(dataset.images), BytesOf(SmallDataset().images));
}

TEST(GatherBatchTest, RejectsBadIndices) {
  const ImageDataset dataset = SmallDataset();
  ExpectError(GatherBatch(dataset, {}).status(), kInvalidArgument,
              {"at least one"});
  ExpectError(GatherBatch(dataset, {0, 4}).status(), kInvalidArgument,
              {"index 4", "position 1", "0 to 3"});
  ExpectError(GatherBatch(dataset, {-1}).status(), kInvalidArgument,
              {"index -1", "position 0"});
}

TEST(ToUnitRangeTest, ScalesTheEndsExactlyAndKeepsTheInput) {
  const at::Tensor bytes = at::arange(256, at::kByte).view({2, 128});
  const at::Tensor scaled = ToUnitRange(bytes);
  EXPECT_EQ(scaled.scalar_type(), at::kFloat);
  EXPECT_THAT(scaled.sizes(), ElementsAre(2, 128));
  const float* value = scaled.data_ptr<float>();
  EXPECT_EQ(value[0], -1.0f);
  EXPECT_EQ(value[255], 1.0f);
  for (int i = 0; i < 256; ++i) ASSERT_NEAR(value[i], i / 127.5 - 1.0, 1e-6);
  EXPECT_EQ(bytes.data_ptr<uint8_t>()[255], 255);
}

TEST(ToUnitRangeTest, ThrowsForAnotherDtype) {
  EXPECT_THROW(ToUnitRange(at::zeros({2})), c10::Error);
}

}  // namespace
}  // namespace miniray::ml
