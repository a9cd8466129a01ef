#include "ml/data/cifar10_reader.h"

#include <sys/stat.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kDataLoss;
using absl::StatusCode::kInvalidArgument;
using absl::StatusCode::kNotFound;
using ::testing::ElementsAre;
using ::testing::SizeIs;

constexpr int64_t kPixelBytes = 3072;

// Pixels of image `index` of a test set; no two images are the same.
std::string Pixels(int index) {
  return CountingBytes(kPixelBytes + 250).substr(index, kPixelBytes);
}

std::string Record(int index) {
  return std::string(1, static_cast<char>(index % 10)) + Pixels(index);
}

class Cifar10ReaderTest : public ::testing::Test {
 protected:
  // Writes five files of `per_file` records and a test file of two.
  void WriteAll(const std::string& folder, int per_file) {
    int index = 0;
    for (int batch = 1; batch <= 5; ++batch) {
      std::string bytes;
      for (int i = 0; i < per_file; ++i) bytes += Record(index++);
      WriteTestFile(folder, "data_batch_" + std::to_string(batch) + ".bin",
                    bytes);
    }
    WriteTestFile(folder, "test_batch.bin", Record(100) + Record(101));
  }

  const std::string dir_ = MakeTestFolder();
};

TEST_F(Cifar10ReaderTest, ReadsTheFilesInOrder) {
  WriteAll(dir_, 3);
  ASSERT_OK_AND_ASSIGN(const ImageDataset data,
                       ReadCifar10Binary(dir_, Split::kTrain));
  EXPECT_THAT(data.images.sizes(), ElementsAre(15, 3, 32, 32));
  EXPECT_THAT(ValuesOf(data.labels),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4));
  for (int i = 0; i < 15; ++i) {
    EXPECT_TRUE(BytesOf(data.images[i]) == Pixels(i)) << i;
  }
  EXPECT_TRUE(ValidateImageDataset(data).ok());
}

TEST_F(Cifar10ReaderTest, ReadsTheTestSplit) {
  WriteAll(dir_, 1);
  ASSERT_OK_AND_ASSIGN(const ImageDataset data,
                       ReadCifar10Binary(dir_, Split::kTest));
  EXPECT_EQ(data.size(), 2);
  EXPECT_TRUE(BytesOf(data.images[1]) == Pixels(101));
}

TEST_F(Cifar10ReaderTest, ReadsTheFolderInTheArchive) {
  const std::string inner = dir_ + "/cifar-10-batches-bin";
  ASSERT_EQ(mkdir(inner.c_str(), 0755), 0);
  WriteAll(inner, 1);
  ASSERT_OK_AND_ASSIGN(const ImageDataset data,
                       ReadCifar10Binary(dir_, Split::kTrain));
  EXPECT_EQ(data.size(), 5);
}

TEST_F(Cifar10ReaderTest, ReadsMoreThanOneBufferAFile) {
  WriteAll(dir_, 1);
  std::string bytes;
  for (int i = 0; i < 600; ++i) bytes += Record(i % 250);
  WriteTestFile(dir_, "test_batch.bin", bytes);
  ASSERT_OK_AND_ASSIGN(const ImageDataset data,
                       ReadCifar10Binary(dir_, Split::kTest));
  ASSERT_EQ(data.size(), 600);
  for (int i = 0; i < 600; ++i) {
    ASSERT_TRUE(BytesOf(data.images[i]) == Pixels(i % 250)) << i;
  }
}

TEST_F(Cifar10ReaderTest, ReadsOnlyTheSelectedPart) {
  WriteAll(dir_, 3);
  // Records 4 to 7 of the first 12: from the second file into the third.
  ASSERT_OK_AND_ASSIGN(
      const ImageDataset data,
      ReadCifar10Binary(dir_, Split::kTrain,
                        {.limit = 12, .shard_id = 1, .num_shards = 3}));
  ASSERT_EQ(data.size(), 4);
  EXPECT_THAT(ValuesOf(data.labels), ElementsAre(4, 5, 6, 7));
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(BytesOf(data.images[i]) == Pixels(4 + i)) << i;
  }
  EXPECT_EQ(data.images.storage().nbytes(), 4u * kPixelBytes);
}

TEST_F(Cifar10ReaderTest, ShardsTogetherAreTheWhole) {
  WriteAll(dir_, 3);
  ASSERT_OK_AND_ASSIGN(const ImageDataset all,
                       ReadCifar10Binary(dir_, Split::kTrain));
  std::string bytes;
  for (int shard_id = 0; shard_id < 4; ++shard_id) {
    ASSERT_OK_AND_ASSIGN(
        const ImageDataset part,
        ReadCifar10Binary(dir_, Split::kTrain,
                          {.shard_id = shard_id, .num_shards = 4}));
    bytes += BytesOf(part.images);
  }
  EXPECT_TRUE(bytes == BytesOf(all.images));
}

TEST_F(Cifar10ReaderTest, TakesClassNamesFromTheMetaFile) {
  WriteAll(dir_, 1);
  ASSERT_OK_AND_ASSIGN(const ImageDataset without,
                       ReadCifar10Binary(dir_, Split::kTest));
  EXPECT_THAT(without.class_names,
              ElementsAre("airplane", "automobile", "bird", "cat", "deer",
                          "dog", "frog", "horse", "ship", "truck"));
  // The official file ends in an empty line.
  WriteTestFile(dir_, "batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\r\nh\ni\nj\n\n");
  ASSERT_OK_AND_ASSIGN(const ImageDataset with,
                       ReadCifar10Binary(dir_, Split::kTest));
  EXPECT_THAT(with.class_names,
              ElementsAre("a", "b", "c", "d", "e", "f", "g", "h", "i", "j"));
}

TEST_F(Cifar10ReaderTest, RejectsABadMetaFile) {
  WriteAll(dir_, 1);
  const std::string path =
      WriteTestFile(dir_, "batches.meta.txt", "airplane\nbird\n");
  ExpectError(ReadCifar10Binary(dir_, Split::kTest).status(), kDataLoss,
              {path, "at byte 14", "2 class names", "expected 10"});
  WriteTestFile(dir_, "batches.meta.txt", CountingBytes(70000));
  ExpectError(ReadCifar10Binary(dir_, Split::kTest).status(), kDataLoss,
              {path, "at byte 0", "expected 10 lines"});
}

TEST_F(Cifar10ReaderTest, SaysWhatBelongsInAnEmptyFolder) {
  ExpectError(ReadCifar10Binary(dir_, Split::kTrain).status(), kNotFound,
              {dir_, "data_batch_1.bin", "data_batch_5.bin",
               "cifar-10-batches-bin", "cifar-10-binary.tar.gz"});
  ExpectError(ReadCifar10Binary(dir_ + "/absent", Split::kTest).status(),
              kNotFound,
              {"no such folder", dir_ + "/absent", "test_batch.bin"});
}

TEST_F(Cifar10ReaderTest, RecognisesTheArchiveAndThePythonVersion) {
  WriteTestFile(dir_, "data_batch_1", "pickle");
  ExpectError(ReadCifar10Binary(dir_, Split::kTrain).status(), kNotFound,
              {"Python version", "cifar-10-binary.tar.gz"});
  WriteTestFile(dir_, "cifar-10-binary.tar.gz", "archive");
  ExpectError(ReadCifar10Binary(dir_, Split::kTrain).status(), kNotFound,
              {"tar -xzf cifar-10-binary.tar.gz"});
}

TEST_F(Cifar10ReaderTest, NamesOneMissingFile) {
  WriteAll(dir_, 1);
  const std::string missing = dir_ + "/data_batch_4.bin";
  ASSERT_EQ(remove(missing.c_str()), 0);
  ExpectError(ReadCifar10Binary(dir_, Split::kTrain).status(), kNotFound,
              {missing});
}

TEST_F(Cifar10ReaderTest, RejectsFilesThatAreNotWholeRecords) {
  WriteAll(dir_, 2);
  const std::string path = WriteTestFile(dir_, "data_batch_2.bin",
                                         (Record(0) + Record(1)).substr(1));
  // Found on every shard, also on one that does not need the file.
  ExpectError(
      ReadCifar10Binary(dir_, Split::kTrain, {.num_shards = 5}).status(),
      kDataLoss,
      {path, "at byte 3073", "3072 bytes are left of the file's 6145",
       "records of 3073 bytes"});
  WriteTestFile(dir_, "data_batch_2.bin", "");
  ExpectError(ReadCifar10Binary(dir_, Split::kTrain).status(), kDataLoss,
              {path, "at byte 0", "the file's 0"});
}

TEST_F(Cifar10ReaderTest, RejectsALabelThatIsNoClass) {
  WriteAll(dir_, 2);
  std::string bytes = Record(0) + Record(1);
  bytes[3073] = 10;
  const std::string path = WriteTestFile(dir_, "data_batch_3.bin", bytes);
  ExpectError(ReadCifar10Binary(dir_, Split::kTrain).status(), kDataLoss,
              {path, "at byte 3073", "label 10 of record 1", "0 to 9"});
}

TEST_F(Cifar10ReaderTest, RejectsGzip) {
  WriteAll(dir_, 1);
  const std::string path =
      WriteTestFile(dir_, "test_batch.bin", Gzip(Record(0)));
  ExpectError(ReadCifar10Binary(dir_, Split::kTest).status(), kDataLoss,
              {path, "at byte 0", "gzip", "gunzip"});
}

TEST_F(Cifar10ReaderTest, RejectsABadSelection) {
  WriteAll(dir_, 1);
  ExpectError(
      ReadCifar10Binary(dir_, Split::kTrain, {.num_shards = 6}).status(),
      kInvalidArgument, {"6 shards", "5 items"});
}

}  // namespace
}  // namespace miniray::ml
