#include "ml/data/idx_reader.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kDataLoss;
using absl::StatusCode::kInvalidArgument;
using absl::StatusCode::kNotFound;
using ::testing::ElementsAre;

// Five images of 3 x 4 bytes.
std::string ImageFile() { return IdxHeader({5, 3, 4}) + CountingBytes(60); }

std::string LabelFile() {
  return IdxHeader({5}) + std::string("\x00\x01\x02\x01\x00", 5);
}

// Every test runs on plain files and on gzip files of the same contents.
class IdxReaderTest : public ::testing::TestWithParam<bool> {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    // No ".gz": the contents tell.
    return WriteTestFile(folder_, name, GetParam() ? Gzip(bytes) : bytes);
  }

  // Where errors count bytes.
  std::string AtByte(int at) const {
    return "at byte " + std::to_string(at) +
           (GetParam() ? " of the decompressed data: " : ": ");
  }

  void ExpectImagesError(const std::string& bytes,
                         const std::vector<std::string>& parts) {
    const std::string path = Write("images", bytes);
    const absl::Status status = ReadIdxImages(path).status();
    ExpectError(status, kDataLoss, parts);
    ExpectError(status, kDataLoss, {path});
  }

  void ExpectLabelsError(const std::string& bytes,
                         const std::vector<std::string>& parts) {
    const std::string path = Write("labels", bytes);
    const absl::Status status = ReadIdxLabels(path, 3).status();
    ExpectError(status, kDataLoss, parts);
    ExpectError(status, kDataLoss, {path});
  }

  const std::string folder_ = MakeTestFolder();
};

INSTANTIATE_TEST_SUITE_P(PlainAndGzip, IdxReaderTest, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Gzip" : "Plain";
                         });

TEST_P(IdxReaderTest, ReadsImages) {
  ASSERT_OK_AND_ASSIGN(const at::Tensor images,
                       ReadIdxImages(Write("images", ImageFile())));
  EXPECT_EQ(images.scalar_type(), at::kByte);
  EXPECT_THAT(images.sizes(), ElementsAre(5, 1, 3, 4));
  EXPECT_EQ(BytesOf(images), CountingBytes(60));
}

TEST_P(IdxReaderTest, ReadsLabels) {
  ASSERT_OK_AND_ASSIGN(const at::Tensor labels,
                       ReadIdxLabels(Write("labels", LabelFile()), 3));
  EXPECT_EQ(labels.scalar_type(), at::kLong);
  EXPECT_THAT(ValuesOf(labels), ElementsAre(0, 1, 2, 1, 0));
}

TEST_P(IdxReaderTest, ReadsOnlyTheSelectedPart) {
  ASSERT_OK_AND_ASSIGN(
      const ImageDataset dataset,
      ReadIdxDataset(Write("images", ImageFile()), Write("labels", LabelFile()),
                     {"a", "b", "c"},
                     {.limit = 4, .shard_id = 1, .num_shards = 2}));
  EXPECT_THAT(dataset.images.sizes(), ElementsAre(2, 1, 3, 4));
  EXPECT_EQ(BytesOf(dataset.images), CountingBytes(60).substr(24, 24));
  EXPECT_THAT(ValuesOf(dataset.labels), ElementsAre(2, 1));
  EXPECT_THAT(dataset.class_names, ElementsAre("a", "b", "c"));
  // Not a view of everything.
  EXPECT_EQ(dataset.images.storage().nbytes(), 24u);
  EXPECT_EQ(dataset.labels.storage().nbytes(), 2 * sizeof(int64_t));
}

TEST_P(IdxReaderTest, ShardsTogetherAreTheWhole) {
  const std::string images = Write("images", ImageFile());
  std::string bytes;
  for (int shard_id = 0; shard_id < 3; ++shard_id) {
    ASSERT_OK_AND_ASSIGN(
        const at::Tensor part,
        ReadIdxImages(images, {.shard_id = shard_id, .num_shards = 3}));
    bytes += BytesOf(part);
  }
  EXPECT_EQ(bytes, CountingBytes(60));
}

TEST_P(IdxReaderTest, RejectsAFileThatIsNotIdx) {
  ExpectImagesError("PNG? " + CountingBytes(60),
                    {AtByte(0), "0x504e473f", "expected 0x00000803"});
  ExpectLabelsError("PNG? " + CountingBytes(60),
                    {AtByte(0), "0x504e473f", "expected 0x00000801"});
}

TEST_P(IdxReaderTest, RejectsAnotherElementType) {
  ExpectImagesError(IdxHeader({5, 3, 4}, 0x0d) + CountingBytes(240),
                    {AtByte(2), "element type 0x0d", "expected 0x08"});
}

TEST_P(IdxReaderTest, RejectsAnotherNumberOfDimensions) {
  ExpectImagesError(LabelFile(), {AtByte(3), "dimension 1", "expected 3"});
  ExpectImagesError(IdxHeader({5, 1, 3, 4}) + CountingBytes(60),
                    {AtByte(3), "dimension 4", "expected 3"});
  ExpectLabelsError(ImageFile(), {AtByte(3), "dimension 3", "expected 1"});
}

TEST_P(IdxReaderTest, RejectsAFileThatEndsInTheHeader) {
  ExpectImagesError("", {AtByte(0), "truncated", "magic number"});
  ExpectImagesError(ImageFile().substr(0, 3), {AtByte(3), "magic number"});
  ExpectImagesError(ImageFile().substr(0, 14),
                    {AtByte(14), "truncated", "array size", "12 to 16"});
  ExpectLabelsError(LabelFile().substr(0, 4), {AtByte(4), "array size"});
}

TEST_P(IdxReaderTest, RejectsSizesOfZero) {
  ExpectImagesError(IdxHeader({0, 28, 28}), {AtByte(4), "size 0"});
  ExpectImagesError(IdxHeader({5, 28, 0}), {AtByte(12), "size 0"});
  ExpectLabelsError(IdxHeader({0}), {AtByte(4), "size 0"});
}

TEST_P(IdxReaderTest, RejectsSizesBeyondAnyMemory) {
  ExpectImagesError(IdxHeader({0xffffffff, 0xffffffff, 0xffffffff}),
                    {AtByte(4), "4294967295 x 4294967295 x 4294967295"});
  // 2^64 wraps to 0.
  ExpectImagesError(IdxHeader({0x80000000, 0x80000000, 4}),
                    {AtByte(4), "2147483648 x 2147483648 x 4"});
  ExpectImagesError(IdxHeader({0x40000000, 28, 28}) + CountingBytes(100),
                    {AtByte(4), "1073741824 x 28 x 28"});
  ExpectLabelsError(IdxHeader({0xffffffff}), {AtByte(4), "4294967295 bytes"});
}

TEST_P(IdxReaderTest, RejectsTruncatedData) {
  const std::string images = ImageFile();
  const std::string labels = LabelFile();
  if (GetParam()) {
    ExpectImagesError(images.substr(0, images.size() - 1),
                      {AtByte(75), "truncated", "16 to 76"});
    ExpectLabelsError(labels.substr(0, labels.size() - 1),
                      {AtByte(12), "truncated", "8 to 13"});
  } else {
    ExpectImagesError(images.substr(0, images.size() - 1),
                      {AtByte(4), "truncated", "5 x 3 x 4", "only 59"});
    ExpectLabelsError(labels.substr(0, labels.size() - 1),
                      {AtByte(4), "truncated", "5 bytes", "only 4"});
  }
}

TEST_P(IdxReaderTest, FindsTruncationBeyondTheSelectedPart) {
  const std::string bytes = ImageFile();
  ExpectError(ReadIdxImages(Write("images", bytes.substr(0, bytes.size() - 1)),
                            {.limit = 1})
                  .status(),
              kDataLoss, {"truncated"});
}

TEST_P(IdxReaderTest, RejectsTrailingBytes) {
  ExpectImagesError(ImageFile() + "x",
                    {AtByte(76), "trailing", "after 5 images"});
  ExpectLabelsError(LabelFile() + "x",
                    {AtByte(13), "trailing", "after 5 labels"});
}

TEST_P(IdxReaderTest, RejectsALabelThatIsNoClass) {
  ExpectLabelsError(IdxHeader({3}) + std::string("\x02\x03\x00", 3),
                    {AtByte(9), "label 3 of item 1", "0 to 2"});
}

TEST_P(IdxReaderTest, RejectsDifferentCounts) {
  const std::string images = Write("images", ImageFile());
  const std::string labels =
      Write("labels", IdxHeader({4}) + std::string(4, '\0'));
  ExpectError(ReadIdxDataset(images, labels, {"a"}).status(), kDataLoss,
              {images, AtByte(4), "5 images", labels, "4 labels"});
}

TEST_P(IdxReaderTest, RejectsABadSelection) {
  ExpectError(ReadIdxImages(Write("images", ImageFile()),
                            {.shard_id = 2, .num_shards = 2})
                  .status(),
              kInvalidArgument, {"shard_id is 2"});
}

TEST_P(IdxReaderTest, ReadsMoreThanOneAllocation) {
  // Gzip contents are stored in 64 MiB at first.
  const int64_t pixels = int64_t{70} << 20;
  const std::string bytes = CountingBytes(pixels);
  ASSERT_OK_AND_ASSIGN(
      const at::Tensor images,
      ReadIdxImages(Write("images", IdxHeader({70, 1024, 1024}) + bytes)));
  EXPECT_THAT(images.sizes(), ElementsAre(70, 1, 1024, 1024));
  EXPECT_TRUE(BytesOf(images) == bytes);
}

TEST(IdxReaderErrorTest, NamesAMissingFile) {
  const std::string path = MakeTestFolder() + "/absent";
  ExpectError(ReadIdxImages(path).status(), kNotFound, {path});
  ExpectError(ReadIdxLabels(path, 10).status(), kNotFound, {path});
}

}  // namespace
}  // namespace miniray::ml
