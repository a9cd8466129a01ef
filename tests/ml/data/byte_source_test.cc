#include "ml/data/byte_source.h"

#include <sys/stat.h>

#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kDataLoss;
using absl::StatusCode::kFailedPrecondition;
using absl::StatusCode::kNotFound;

// Reads `size` bytes and expects the end.
absl::StatusOr<std::string> ReadAll(const std::string& path, int64_t size) {
  absl::StatusOr<std::unique_ptr<ByteSource>> source = ByteSource::Open(path);
  if (!source.ok()) return source.status();
  std::string bytes(size, '\0');
  absl::Status status = (*source)->Read(bytes.data(), size, "test bytes");
  if (status.ok()) status = (*source)->ExpectEnd("test bytes");
  if (!status.ok()) return status;
  return bytes;
}

TEST(ByteSourceTest, TellsGzipByItsContents) {
  const std::string folder = MakeTestFolder();
  const std::string bytes = CountingBytes(5000);
  ASSERT_OK_AND_ASSIGN(const auto plain, ByteSource::Open(WriteTestFile(
                                             folder, "misnamed.gz", bytes)));
  EXPECT_FALSE(plain->compressed());
  EXPECT_EQ(plain->max_remaining(), 5000);
  ASSERT_OK_AND_ASSIGN(const auto gzip, ByteSource::Open(WriteTestFile(
                                            folder, "x", Gzip(bytes))));
  EXPECT_TRUE(gzip->compressed());
  EXPECT_GE(gzip->max_remaining(), 5000);
}

TEST(ByteSourceTest, SkipsAndCountsTheSameWayInBoth) {
  const std::string folder = MakeTestFolder();
  const std::string bytes = CountingBytes(300000);
  for (const std::string& contents : {bytes, Gzip(bytes)}) {
    ASSERT_OK_AND_ASSIGN(const auto source, ByteSource::Open(WriteTestFile(
                                                folder, "file", contents)));
    ASSERT_TRUE(source->Skip(200000, "a gap").ok());
    EXPECT_EQ(source->offset(), 200000);
    std::string tail(100000, '\0');
    ASSERT_TRUE(source->Read(tail.data(), 100000, "the tail").ok());
    EXPECT_TRUE(tail == bytes.substr(200000));
    EXPECT_TRUE(source->ExpectEnd("the tail").ok());
    EXPECT_EQ(source->offset(), 300000);
  }
}

TEST(ByteSourceTest, SkippingBeyondTheEndIsAnError) {
  const std::string folder = MakeTestFolder();
  const std::string bytes = CountingBytes(100);
  for (const std::string& contents : {bytes, Gzip(bytes)}) {
    ASSERT_OK_AND_ASSIGN(const auto source, ByteSource::Open(WriteTestFile(
                                                folder, "file", contents)));
    ExpectError(source->Skip(101, "a gap"), kDataLoss,
                {source->path(), "at byte 100", "truncated", "a gap"});
  }
}

TEST(ByteSourceTest, ReadsGzipMembersOneAfterTheOther) {
  const std::string bytes = CountingBytes(1000);
  ASSERT_OK_AND_ASSIGN(
      const std::string read,
      ReadAll(WriteTestFile(MakeTestFolder(), "file",
                            Gzip(bytes.substr(0, 400)) + Gzip("") +
                                Gzip(bytes.substr(400))),
              1000));
  EXPECT_EQ(read, bytes);
}

TEST(ByteSourceTest, RejectsBytesAfterTheGzipData) {
  const std::string gzip = Gzip(CountingBytes(1000));
  ExpectError(
      ReadAll(WriteTestFile(MakeTestFolder(), "file", gzip + "rest"), 1000)
          .status(),
      kDataLoss,
      {"at byte 1000 of the decompressed data", "trailing bytes",
       "from byte " + std::to_string(gzip.size()) + " of the file"});
}

TEST(ByteSourceTest, RejectsTruncatedGzipData) {
  const std::string folder = MakeTestFolder();
  const std::string gzip = Gzip(CountingBytes(1000));
  // In the header, in the data, and in the trailer behind all the data.
  for (size_t size : {size_t{5}, gzip.size() / 2, gzip.size() - 1}) {
    const std::string path =
        WriteTestFile(folder, "file", gzip.substr(0, size));
    ExpectError(ReadAll(path, 1000).status(), kDataLoss,
                {path, "truncated", "at byte " + std::to_string(size)});
  }
}

TEST(ByteSourceTest, RejectsDamagedGzipData) {
  const std::string folder = MakeTestFolder();
  const std::string bytes = CountingBytes(1000);
  std::string wrong_checksum = Gzip(bytes);
  wrong_checksum[wrong_checksum.size() - 8] ^= 1;
  const std::string path = WriteTestFile(folder, "checksum", wrong_checksum);
  ExpectError(ReadAll(path, 1000).status(), kDataLoss,
              {path, "at byte 1000", "damaged gzip data", "data check"});

  std::string wrong_block = Gzip(bytes);
  wrong_block[10] = '\x07';  // A deflate block of the reserved type.
  ExpectError(
      ReadAll(WriteTestFile(folder, "block", wrong_block), 1000).status(),
      kDataLoss, {"at byte 0", "damaged gzip data", "block type"});
}

TEST(ByteSourceTest, OpensOnlyRegularFiles) {
  const std::string folder = MakeTestFolder();
  ExpectError(ByteSource::Open(folder).status(), kFailedPrecondition,
              {folder, "a folder"});
  const std::string pipe = folder + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ExpectError(ByteSource::Open(pipe).status(), kFailedPrecondition,
              {pipe, "pipe"});
  ExpectError(ByteSource::Open(folder + "/absent").status(), kNotFound,
              {folder + "/absent"});
}

}  // namespace
}  // namespace miniray::ml
