#include "ml/image/jpeg.h"

#include <filesystem>
#include <string>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"
#include "tests/ml/image/jpeg_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kDataLoss;
using absl::StatusCode::kFailedPrecondition;
using absl::StatusCode::kNotFound;
using absl::StatusCode::kResourceExhausted;
using ::testing::ElementsAre;

// Slowly changing, as JPEG likes it.
at::Tensor Gradient(int64_t channels, int64_t height, int64_t width) {
  const at::Tensor y = at::linspace(0, 200, height).view({1, height, 1});
  const at::Tensor x = at::linspace(0, 50, width).view({1, 1, width});
  const at::Tensor c = at::arange(channels).view({channels, 1, 1}) * 2;
  return (y + x + c).to(at::kByte);
}

int64_t LargestDifference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kInt) - b.to(at::kInt)).abs().max().item<int64_t>();
}

class JpegTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& bytes) {
    return WriteTestFile(folder_, "picture.jpg", bytes);
  }
  const std::string folder_ = MakeTestFolder();
};

TEST_F(JpegTest, ReadsColourAndGrey) {
  for (const int64_t channels : {1, 3}) {
    const at::Tensor image = Gradient(channels, 24, 40);
    ASSERT_OK_AND_ASSIGN(const at::Tensor read,
                         ReadJpeg(Write(EncodeJpeg(image))));
    EXPECT_EQ(read.scalar_type(), at::kByte);
    EXPECT_THAT(read.sizes(), ElementsAre(channels, 24, 40));
    EXPECT_TRUE(read.is_contiguous());
    EXPECT_LE(LargestDifference(read, image), 3);
  }
}

TEST_F(JpegTest, InkBecomesLight) {
  const at::Tensor ink = at::tensor({200, 100, 50, 128}, at::kByte)
                             .view({4, 1, 1})
                             .expand({4, 24, 40});
  ASSERT_OK_AND_ASSIGN(const at::Tensor read, ReadJpeg(Write(EncodeJpeg(ink))));
  EXPECT_EQ(read.scalar_type(), at::kByte);
  EXPECT_THAT(read.sizes(), ElementsAre(3, 24, 40));
  // 200 * 128 / 255 = 100.4, and so on: 50.2, 25.1.
  const at::Tensor light =
      at::tensor({100, 50, 25}, at::kByte).view({3, 1, 1}).expand({3, 24, 40});
  EXPECT_LE(LargestDifference(read, light), 3);
}

TEST_F(JpegTest, LeavesOutDetailOfLargePictures) {
  const std::string path = Write(EncodeJpeg(Gradient(3, 160, 320)));
  ASSERT_OK_AND_ASSIGN(const at::Tensor whole, ReadJpeg(path));
  EXPECT_THAT(whole.sizes(), ElementsAre(3, 160, 320));
  // An eighth would have 20 rows, two eighths have 40.
  ASSERT_OK_AND_ASSIGN(const at::Tensor small, ReadJpeg(path, 32));
  EXPECT_THAT(small.sizes(), ElementsAre(3, 40, 80));
  EXPECT_LE(LargestDifference(small.select(2, 0),
                              whole.slice(1, 2, 160, 4).select(2, 2)),
            6);
  ASSERT_OK_AND_ASSIGN(const at::Tensor large, ReadJpeg(path, 500));
  EXPECT_THAT(large.sizes(), ElementsAre(3, 160, 320));
}

TEST_F(JpegTest, BearsStrayBytesBehindTheLastPixel) {
  std::string jpeg = EncodeJpeg(Gradient(3, 24, 40));
  ASSERT_OK_AND_ASSIGN(const at::Tensor clean, ReadJpeg(Write(jpeg)));
  jpeg.insert(jpeg.size() - 2, "\x01\x02\x03");
  ASSERT_OK_AND_ASSIGN(const at::Tensor read, ReadJpeg(Write(jpeg)));
  EXPECT_TRUE(at::equal(read, clean));
  // Without an end they may be anything.
  jpeg.resize(jpeg.size() - 2);
  ExpectError(ReadJpeg(Write(jpeg)).status(), kDataLoss, {"no JPEG"});
}

TEST_F(JpegTest, RefusesWhatIsNoJpeg) {
  const std::string jpeg = EncodeJpeg(Gradient(3, 24, 40));
  for (const std::string& bytes :
       {std::string(), std::string("no picture"), jpeg.substr(0, 100),
        jpeg.substr(0, jpeg.size() / 2), jpeg.substr(0, jpeg.size() - 2)}) {
    const std::string path = Write(bytes);
    ExpectError(ReadJpeg(path).status(), kDataLoss,
                {path, "from byte ", "no JPEG"});
  }
  ExpectError(ReadJpeg(Write("no picture")).status(), kDataLoss,
              {"from byte 0 on"});
  // Cut within the pixels, which begin behind the last header.
  const size_t pixels = jpeg.find("\xff\xda");
  ASSERT_NE(pixels, std::string::npos);
  ExpectError(ReadJpeg(Write(jpeg.substr(0, jpeg.size() - 2))).status(),
              kDataLoss, {"from byte " + std::to_string(pixels) + " on"});
  // A segment, the first one, that is longer than the file.
  std::string longer = jpeg;
  longer.replace(4, 2, "\xff\xff");
  ExpectError(ReadJpeg(Write(longer)).status(), kDataLoss, {"from byte 2 on"});
  ExpectError(ReadJpeg(folder_ + "/none.jpg").status(), kNotFound,
              {"none.jpg"});
  ExpectError(ReadJpeg(folder_).status(), kFailedPrecondition, {folder_});
}

TEST_F(JpegTest, RefusesASizeThatIsTooLarge) {
  std::string jpeg = EncodeJpeg(Gradient(3, 24, 40));
  // The frame's header: FF C0, its length, 8 bits, height, width.
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xc0\x01\xc0\x01");
  ExpectError(ReadJpeg(Write(jpeg)).status(), kResourceExhausted,
              {"49153 x 49153", "limit"});
  std::filesystem::resize_file(Write("x"), kMaxJpegFileBytes + 1);
  ExpectError(ReadJpeg(folder_ + "/picture.jpg").status(), kResourceExhausted,
              {"picture.jpg", "limit"});
}

}  // namespace
}  // namespace miniray::ml
