#include "ml/image/png.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "ATen/ops/arange.h"
#include "ATen/ops/zeros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kDataLoss;
using absl::StatusCode::kFailedPrecondition;
using absl::StatusCode::kInvalidArgument;
using absl::StatusCode::kNotFound;
using absl::StatusCode::kResourceExhausted;
using ::testing::ElementsAre;

std::string Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>((value >> shift) & 0xff));
  }
  return bytes;
}

std::string Chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const uLong crc =
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), body.size());
  return BigEndian(data.size()) + body + BigEndian(crc);
}

// Returns a PNG with valid checksums: 8 bits, `color_type`, `rows` as in the
// PNG specification (a filter byte before each row).
std::string MakePng(uint32_t width, uint32_t height, int color_type,
                    const std::string& rows, const std::string& extra = "") {
  std::string idat(compressBound(rows.size()), '\0');
  uLongf size = idat.size();
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(idat.data()), &size,
                     reinterpret_cast<const Bytef*>(rows.data()), rows.size()),
            Z_OK);
  idat.resize(size);
  return "\x89PNG\r\n\x1a\n" +
         Chunk("IHDR",
               BigEndian(width) + BigEndian(height) +
                   std::string{8, static_cast<char>(color_type), 0, 0, 0}) +
         extra + Chunk("IDAT", idat) + Chunk("IEND", "");
}

TEST(PngTest, GreyRoundTripKeepsAllValues) {
  const std::string folder = MakeTestFolder();
  const at::Tensor image = at::arange(256, at::kByte).view({1, 8, 32});
  ASSERT_TRUE(WritePng(folder + "/grey.png", image).ok());
  ASSERT_OK_AND_ASSIGN(const at::Tensor read, ReadPng(folder + "/grey.png"));
  EXPECT_THAT(read.sizes(), ElementsAre(1, 8, 32));
  EXPECT_TRUE(read.equal(image));
  EXPECT_THAT(Names(folder), ElementsAre("grey.png"));
}

TEST(PngTest, RgbRoundTripKeepsTheChannels) {
  const std::string path = MakeTestFolder() + "/rgb.png";
  const at::Tensor image = at::arange(3 * 5 * 7, at::kByte).view({3, 5, 7});
  ASSERT_TRUE(WritePng(path, image).ok());
  ASSERT_OK_AND_ASSIGN(const at::Tensor read, ReadPng(path));
  EXPECT_THAT(read.sizes(), ElementsAre(3, 5, 7));
  EXPECT_TRUE(read.is_contiguous());
  EXPECT_TRUE(read.equal(image));
}

TEST(PngTest, WritesAStandardFile) {
  const std::string path = MakeTestFolder() + "/rgb.png";
  ASSERT_TRUE(WritePng(path, at::zeros({3, 5, 7}, at::kByte)).ok());
  // Signature, then IHDR: 7 wide, 5 high, 8 bits, colour type 2 (RGB).
  const std::string ihdr =
      BigEndian(7) + BigEndian(5) + std::string("\x08\x02\x00\x00\x00", 5);
  EXPECT_EQ(Contents(path).substr(0, 33),
            "\x89PNG\r\n\x1a\n" + Chunk("IHDR", ihdr));
}

TEST(PngTest, WritesViewsAsTheyLook) {
  const std::string path = MakeTestFolder() + "/view.png";
  const at::Tensor image =
      at::arange(60, at::kByte).view({1, 6, 10}).transpose(1, 2);
  ASSERT_TRUE(WritePng(path, image).ok());
  ASSERT_OK_AND_ASSIGN(const at::Tensor read, ReadPng(path));
  EXPECT_TRUE(read.equal(image));
}

TEST(PngTest, ReplacesAnOlderPicture) {
  const std::string folder = MakeTestFolder();
  const std::string path = WriteTestFile(folder, "a.png", "old");
  ASSERT_TRUE(WritePng(path, at::zeros({1, 2, 2}, at::kByte)).ok());
  EXPECT_TRUE(ReadPng(path).ok());
  EXPECT_THAT(Names(folder), ElementsAre("a.png"));
}

TEST(PngTest, RejectsTensorsThatAreNoPicture) {
  const std::string path = MakeTestFolder() + "/a.png";
  ExpectError(WritePng(path, at::Tensor()), kInvalidArgument,
              {path, "undefined"});
  ExpectError(WritePng(path, at::zeros({3, 4, 4})), kInvalidArgument,
              {path, "uint8", "Float [3, 4, 4]"});
  ExpectError(WritePng(path, at::zeros({4, 4}, at::kByte)), kInvalidArgument,
              {"Byte [4, 4]"});
  ExpectError(WritePng(path, at::zeros({2, 4, 4}, at::kByte)), kInvalidArgument,
              {"Byte [2, 4, 4]", "C = 1 or 3"});
  ExpectError(WritePng(path, at::zeros({1, 0, 4}, at::kByte)), kInvalidArgument,
              {"Byte [1, 0, 4]"});
  ExpectError(
      WritePng(path, at::zeros({1, 1, 1}, at::kByte).expand({1, 8193, 8192})),
      kInvalidArgument, {"8193 x 8192", "67108864"});
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(PngTest, AMissingFolderIsAnError) {
  const std::string path = MakeTestFolder() + "/absent/a.png";
  ExpectError(WritePng(path, at::zeros({1, 2, 2}, at::kByte)), kNotFound,
              {path});
}

TEST(PngTest, AFolderInTheWayIsAnErrorAndLeavesNothing) {
  const std::string folder = MakeTestFolder();
  const std::string path = folder + "/a.png";
  ASSERT_EQ(mkdir(path.c_str(), 0755), 0);
  EXPECT_FALSE(WritePng(path, at::zeros({1, 2, 2}, at::kByte)).ok());
  EXPECT_THAT(Names(folder), ElementsAre("a.png"));
}

// Stands for a full disk: the system refuses the write half-way.
TEST(PngTest, AFailedWriteKeepsTheOldPictureAndLeavesNothing) {
  const std::string folder = MakeTestFolder();
  const std::string path = WriteTestFile(folder, "a.png", "old");
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {60, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status =
      WritePng(path, at::arange(256, at::kByte).view({1, 16, 16}));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_FALSE(status.ok());
  ExpectError(status, status.code(), {path, "write"});
  EXPECT_EQ(Contents(path), "old");
  EXPECT_THAT(Names(folder), ElementsAre("a.png"));
}

TEST(ReadPngTest, ReadsOtherColourTypes) {
  const std::string folder = MakeTestFolder();
  // One row of two pixels: a palette of red and white; then red, transparent.
  const std::string palette =
      MakePng(2, 1, /*color_type=*/3, std::string("\0\0\1", 3),
              Chunk("PLTE", std::string("\xff\x00\x00\xff\xff\xff", 6)));
  ASSERT_OK_AND_ASSIGN(const at::Tensor from_palette,
                       ReadPng(WriteTestFile(folder, "palette", palette)));
  EXPECT_THAT(from_palette.sizes(), ElementsAre(3, 1, 2));
  EXPECT_EQ(BytesOf(from_palette), std::string("\xff\xff\x00\xff\x00\xff", 6));
  const std::string alpha =
      MakePng(2, 1, /*color_type=*/6,
              std::string("\0\xff\x00\x00\xff\xff\x00\x00\x00", 9));
  ASSERT_OK_AND_ASSIGN(const at::Tensor from_alpha,
                       ReadPng(WriteTestFile(folder, "alpha", alpha)));
  EXPECT_EQ(BytesOf(from_alpha), std::string("\xff\x00\x00\x00\x00\x00", 6));
}

TEST(ReadPngTest, RejectsFilesThatAreNoPng) {
  const std::string folder = MakeTestFolder();
  for (const std::string& bytes :
       {std::string(), std::string("GIF89a, not a PNG at all"),
        std::string("\x89PNG\r\n\x1a\n")}) {
    const std::string path = WriteTestFile(folder, "a.png", bytes);
    ExpectError(ReadPng(path).status(), kDataLoss, {path, "libpng"});
  }
  ExpectError(ReadPng(folder).status(), kFailedPrecondition, {folder});
  ExpectError(ReadPng(folder + "/absent").status(), kNotFound,
              {folder + "/absent"});
}

TEST(ReadPngTest, SaysWhereTheDamageIs) {
  const std::string folder = MakeTestFolder();
  // Chunks: IHDR at byte 8, of 12 + 13; IDAT at 33.
  const std::string good =
      MakePng(2, 1, /*color_type=*/2, std::string("\0\1\2\3\4\5\6", 7));
  ASSERT_TRUE(ReadPng(WriteTestFile(folder, "a.png", good)).ok());
  const auto expect = [&](const std::string& bytes, const std::string& where) {
    const std::string path = WriteTestFile(folder, "a.png", bytes);
    ExpectError(ReadPng(path).status(), kDataLoss, {path, where, "libpng"});
  };
  expect("GIF89a, not a PNG at all", ": from byte 0 on: ");
  expect(good.substr(0, 20), ": from byte 8 on: ");
  expect(good.substr(0, 40), ": from byte 33 on: ");
  std::string damaged = good;
  damaged[8 + 8] ^= 1;  // The width.
  expect(damaged, ": from byte 8 on: ");
  damaged = good;
  damaged[33 + 8] ^= 1;  // How the pixels are compressed.
  expect(damaged, ": from byte 33 on: ");
  // The same with a right checksum: a chunk of what deflate never wrote.
  expect(good.substr(0, 33) + Chunk("IDAT", "no pixels") + Chunk("IEND", ""),
         ": from byte 33 on: ");
}

TEST(ReadPngTest, RejectsAFileCutAnywhere) {
  const std::string folder = MakeTestFolder();
  const std::string whole = folder + "/whole.png";
  ASSERT_TRUE(WritePng(whole, at::arange(192, at::kByte).view({3, 8, 8})).ok());
  const std::string bytes = Contents(whole);
  // The last 12 bytes are IEND, which holds nothing, and the last 4 before it
  // IDAT's checksum; the pixels are known by then.
  for (size_t size = 0; size + 16 < bytes.size(); ++size) {
    const absl::Status status =
        ReadPng(WriteTestFile(folder, "cut.png", bytes.substr(0, size)))
            .status();
    ASSERT_EQ(status.code(), kDataLoss) << size << " bytes: " << status;
  }
}

TEST(ReadPngTest, SurvivesAnyDamagedByte) {
  const std::string folder = MakeTestFolder();
  const std::string whole = folder + "/whole.png";
  ASSERT_TRUE(WritePng(whole, at::arange(192, at::kByte).view({3, 8, 8})).ok());
  const std::string bytes = Contents(whole);
  int errors = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[at] ^= static_cast<char>(1 << bit);
      if (!ReadPng(WriteTestFile(folder, "damaged.png", damaged)).ok()) {
        ++errors;
      }
    }
  }
  EXPECT_GT(errors, 0);
}

TEST(ReadPngTest, ChecksTheSizeBeforeItTakesMemory) {
  const std::string folder = MakeTestFolder();
  // Within libpng's own limit of a million a side, 3 TB as RGB.
  const std::string huge =
      WriteTestFile(folder, "huge.png", MakePng(1000000, 1000000, 2, "x"));
  ExpectError(ReadPng(huge).status(), kResourceExhausted,
              {huge, "1000000 x 1000000", "67108864"});
  const std::string beyond =
      WriteTestFile(folder, "beyond.png", MakePng(0x7fffffff, 1, 2, "x"));
  ExpectError(ReadPng(beyond).status(), kDataLoss, {beyond});
}

TEST(ReadPngTest, RejectsALargeFile) {
  const std::string path = WriteTestFile(MakeTestFolder(), "a.png", "x");
  // Sparse: takes no space.
  std::filesystem::resize_file(path, kMaxPngFileBytes + 1);
  ExpectError(ReadPng(path).status(), kResourceExhausted,
              {path, "268435457", "268435456"});
}

}  // namespace
}  // namespace miniray::ml
