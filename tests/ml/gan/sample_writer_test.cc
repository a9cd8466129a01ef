#include "ml/gan/sample_writer.h"

#include <filesystem>
#include <string>

#include "ATen/ops/full.h"
#include "ATen/ops/randint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/image/png.h"
#include "runtime/base/files.h"

namespace miniray::ml {
namespace {

using ::testing::HasSubstr;

TEST(SampleGridTest, AColumnForEachOfAFewClasses) {
  EXPECT_EQ(SampleGridFor(0).columns, 8);
  EXPECT_EQ(SampleGridFor(0).images, 64);
  EXPECT_EQ(SampleGridFor(10).columns, 10);
  EXPECT_EQ(SampleGridFor(10).images, 80);
  EXPECT_EQ(SampleGridFor(16).columns, 16);
  EXPECT_EQ(SampleGridFor(17).columns, 8);
  EXPECT_EQ(SampleGridFor(1000).images, 64);
}

TEST(SampleWriterTest, IsDueAfterEverySoManyEpochs) {
  const SampleWriter never("unused", 0);
  const SampleWriter third("unused", 3);
  for (int epoch = 0; epoch < 9; ++epoch) {
    EXPECT_FALSE(never.IsDue(epoch));
    EXPECT_EQ(third.IsDue(epoch), epoch == 2 || epoch == 5 || epoch == 8);
  }
}

TEST(SampleWriterTest, WritesAPictureNamedAfterTheEpoch) {
  const std::string folder = ::testing::TempDir() + "/run/samples";
  const SampleWriter writer(folder, 1);
  ASSERT_EQ(writer.Write(2, at::full({4, 1, 8, 8}, 200, at::kByte), 2),
            absl::OkStatus());
  // Two by two images of 8 pixels, with 2 around each.
  const absl::StatusOr<at::Tensor> picture =
      ReadPng(folder + "/epoch-0003.png");
  ASSERT_EQ(picture.status(), absl::OkStatus());
  EXPECT_EQ(picture->sizes(), at::IntArrayRef({1, 22, 22}));
  // The same epoch again, as after a resumed training.
  EXPECT_EQ(writer.Write(2, at::full({1, 1, 8, 8}, 90, at::kByte), 2),
            absl::OkStatus());
  EXPECT_EQ(ReadPng(folder + "/epoch-0003.png")->sizes(),
            at::IntArrayRef({1, 12, 12}));
}

TEST(SampleWriterTest, AFolderThatCannotBeMadeIsAnError) {
  const std::string file = ::testing::TempDir() + "/not_a_folder";
  ASSERT_EQ(WriteFileAtomically(file, "x"), absl::OkStatus());
  const absl::Status status =
      SampleWriter(file + "/samples", 1)
          .Write(0, at::full({1, 1, 8, 8}, 90, at::kByte), 1);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("not_a_folder"));
}

at::Tensor Decode(const std::string& png) {
  const std::string file = ::testing::TempDir() + "/encoded.png";
  EXPECT_EQ(WriteFileAtomically(file, png), absl::OkStatus());
  return *ReadPng(file);
}

TEST(EncodeSamplesTest, IsThePictureThatIsWritten) {
  const at::Tensor images = at::full({4, 1, 8, 8}, 200, at::kByte);
  const auto picture = EncodeSamples(images, 2, 10000);
  ASSERT_EQ(picture.status(), absl::OkStatus());
  EXPECT_EQ(picture->width, 22);
  EXPECT_EQ(picture->height, 22);
  const std::string folder = ::testing::TempDir() + "/encoded";
  ASSERT_EQ(SampleWriter(folder, 1).Write(0, images, 2), absl::OkStatus());
  EXPECT_EQ(ReadFile(folder + "/epoch-0001.png").value_or(""), picture->png);
}

// Noise cannot be compressed: 68 x 68 pixels of three bytes are 13,872.
TEST(EncodeSamplesTest, LeavesOutPixelsUntilItIsSmallEnough) {
  const at::Tensor noise = at::randint(0, 256, {1, 3, 64, 64}, at::kByte);
  const auto whole = EncodeSamples(noise, 1, 1 << 20);
  ASSERT_EQ(whole.status(), absl::OkStatus());
  EXPECT_EQ(whole->width, 68);
  EXPECT_GT(whole->png.size(), 10000);
  // Half of the height and width: 36 x 36 of three bytes are 3,888.
  const auto small = EncodeSamples(noise, 1, 5000);
  ASSERT_EQ(small.status(), absl::OkStatus());
  EXPECT_LE(small->png.size(), 5000);
  EXPECT_EQ(small->width, 36);
  EXPECT_EQ(small->height, 36);
  const at::Tensor pixels = Decode(small->png);
  EXPECT_TRUE(pixels.narrow(1, 2, 32).narrow(2, 2, 32).equal(
      noise[0].slice(1, 0, 64, 2).slice(2, 0, 64, 2)));
  EXPECT_EQ(EncodeSamples(noise, 1, 10).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace miniray::ml
