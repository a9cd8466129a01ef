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

TEST_F(Cifar10ReaderTest, CountsWhatIsUnpacked) {
  ExpectError(CountUnpackedCifar10(dir_, Split::kTrain).status(), kNotFound,
              {dir_, "data_batch_1.bin"});
  // Of an archive, whatever is in it, it need not know.
  WriteTestFile(dir_, "cifar-10-binary.tar.gz", "");
  ASSERT_OK_AND_ASSIGN(const int64_t packed,
                       CountUnpackedCifar10(dir_, Split::kTrain));
  EXPECT_EQ(packed, 0);
  WriteAll(dir_, 3);
  ASSERT_OK_AND_ASSIGN(const int64_t train,
                       CountUnpackedCifar10(dir_, Split::kTrain));
  EXPECT_EQ(train, 15);
  ASSERT_OK_AND_ASSIGN(const int64_t test,
                       CountUnpackedCifar10(dir_, Split::kTest));
  EXPECT_EQ(test, 2);
  WriteTestFile(dir_, "data_batch_3.bin", "part");
  ExpectError(CountUnpackedCifar10(dir_, Split::kTrain).status(), kDataLoss,
              {"data_batch_3.bin", "4 bytes are left"});
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
  const std::string archive =
      WriteTestFile(dir_, "cifar-10-binary.tar.gz", std::string(600, 'a'));
  ExpectError(ReadCifar10Binary(dir_, Split::kTrain).status(), kDataLoss,
              {archive, "no tar header"});
}

// The official archive: as GNU tar makes it, in the order of a folder.
class Cifar10ArchiveTest : public Cifar10ReaderTest {
 protected:
  static std::string Inner(const std::string& name) {
    return "cifar-10-batches-bin/" + name;
  }

  // The archive with what WriteAll(..., per_file) writes.
  static std::string Archive(int per_file) {
    std::string tar = TarMemberBytes(Inner(""), "", '5');
    for (const int batch : {1, 3, 4}) tar += Batch(batch, per_file);
    tar += TarMemberBytes(Inner("batches.meta.txt"),
                          "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
    tar += TarMemberBytes(Inner("test_batch.bin"), Record(100) + Record(101));
    tar += TarMemberBytes(Inner("readme.html"), "<html>");
    for (const int batch : {5, 2}) tar += Batch(batch, per_file);
    return tar + TarEnd();
  }

  static std::string Batch(int batch, int per_file) {
    std::string bytes;
    for (int i = 0; i < per_file; ++i) {
      bytes += Record((batch - 1) * per_file + i);
    }
    return TarMemberBytes(Inner("data_batch_" + std::to_string(batch) + ".bin"),
                          bytes);
  }

  std::string Write(const std::string& bytes) const {
    return WriteTestFile(dir_, "cifar-10-binary.tar.gz", bytes);
  }
};

TEST_F(Cifar10ArchiveTest, HoldsWhatTheFilesDo) {
  const std::string folder = MakeTestFolder();
  WriteAll(folder, 3);
  const std::string path = Write(Gzip(Archive(3)));
  for (const Split split : {Split::kTrain, Split::kTest}) {
    ASSERT_OK_AND_ASSIGN(const ImageDataset files,
                         ReadCifar10Binary(folder, split));
    // The archive itself, and a folder that has it.
    for (const std::string& place : {path, dir_}) {
      ASSERT_OK_AND_ASSIGN(const ImageDataset data,
                           ReadCifar10Binary(place, split));
      EXPECT_TRUE(BytesOf(data.images) == BytesOf(files.images));
      EXPECT_EQ(ValuesOf(data.labels), ValuesOf(files.labels));
      EXPECT_THAT(data.class_names, ElementsAre("a", "b", "c", "d", "e", "f",
                                                "g", "h", "i", "j"));
      EXPECT_TRUE(ValidateImageDataset(data).ok());
    }
  }
}

TEST_F(Cifar10ArchiveTest, IsReadInShards) {
  const std::string path = Write(Gzip(Archive(3)));
  ASSERT_OK_AND_ASSIGN(const ImageDataset all,
                       ReadCifar10Binary(path, Split::kTrain));
  std::string bytes;
  for (int shard_id = 0; shard_id < 4; ++shard_id) {
    ASSERT_OK_AND_ASSIGN(
        const ImageDataset part,
        ReadCifar10Binary(path, Split::kTrain,
                          {.shard_id = shard_id, .num_shards = 4}));
    bytes += BytesOf(part.images);
    EXPECT_EQ(part.images.storage().nbytes(),
              static_cast<size_t>(part.size() * kPixelBytes));
  }
  EXPECT_TRUE(bytes == BytesOf(all.images));
}

TEST_F(Cifar10ArchiveTest, MayBePlainAndHaveFilesWithoutAFolder) {
  const std::string path =
      Write(TarMemberBytes("./test_batch.bin", Record(7), '0', /*posix=*/true) +
            TarEnd());
  ASSERT_OK_AND_ASSIGN(const ImageDataset data,
                       ReadCifar10Binary(path, Split::kTest));
  ASSERT_EQ(data.size(), 1);
  EXPECT_TRUE(BytesOf(data.images[0]) == Pixels(7));
  EXPECT_EQ(data.class_names[7], "horse");
}

TEST_F(Cifar10ArchiveTest, UnpackedFilesComeFirst) {
  Write("no archive");
  WriteAll(dir_, 1);
  EXPECT_TRUE(ReadCifar10Binary(dir_, Split::kTrain).ok());
}

TEST_F(Cifar10ArchiveTest, NamesAMissingFile) {
  const std::string path = Write(
      Gzip(TarMemberBytes(Inner("test_batch.bin"), Record(0)) + TarEnd()));
  ExpectError(ReadCifar10Binary(path, Split::kTrain).status(), kNotFound,
              {path, "no data_batch_1.bin", "cifar-10-binary.tar.gz"});
  // One in another folder is another one.
  Write(TarMemberBytes("other/test_batch.bin", Record(0)) + TarEnd());
  ExpectError(ReadCifar10Binary(path, Split::kTest).status(), kNotFound,
              {"no test_batch.bin"});
  Write(TarMemberBytes("cifar-10-batches-py/data_batch_1", "pickle") +
        TarEnd());
  ExpectError(ReadCifar10Binary(path, Split::kTrain).status(), kNotFound,
              {"this is the Python version"});
}

TEST_F(Cifar10ArchiveTest, RejectsOneThatIsDamaged) {
  const std::string whole = Gzip(Archive(2));
  const std::string path = Write(whole.substr(0, whole.size() / 2));
  ExpectError(ReadCifar10Binary(path, Split::kTest).status(), kDataLoss,
              {path, "the gzip data break off at byte"});
  // Also for who needs nothing but the beginning.
  std::string damaged = whole;
  damaged[damaged.size() - 8] ^= 1;
  Write(damaged);
  ExpectError(
      ReadCifar10Binary(path, Split::kTrain, {.num_shards = 10}).status(),
      kDataLoss, {path, "damaged gzip data", "incorrect data check"});

  std::string header = Archive(2);
  header[3] ^= 1;  // In the name of the first member.
  Write(Gzip(header));
  ExpectError(ReadCifar10Binary(path, Split::kTrain).status(), kDataLoss,
              {path, "at byte 0 of the decompressed data", "checksum"});
}

TEST_F(Cifar10ArchiveTest, RejectsFilesThatAreNoRecords) {
  const std::string path =
      Write(TarMemberBytes("test_batch.bin", Record(0) + "x") + TarEnd());
  ExpectError(ReadCifar10Binary(path, Split::kTest).status(), kDataLoss,
              {path, "at byte 3585",
               "1 bytes are left of test_batch.bin's "
               "3074"});
  std::string records = Record(0) + Record(1);
  records[3073] = 11;
  Write(TarMemberBytes("test_batch.bin", records) + TarEnd());
  ExpectError(ReadCifar10Binary(path, Split::kTest).status(), kDataLoss,
              {path, "at byte 3585", "label 11 of record 1 of test_batch.bin"});
  Write(TarMemberBytes("test_batch.bin", Record(0)) +
        TarMemberBytes("test_batch.bin", Record(1)) + TarEnd());
  ExpectError(ReadCifar10Binary(path, Split::kTest).status(), kDataLoss,
              {path, "a second test_batch.bin"});
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
