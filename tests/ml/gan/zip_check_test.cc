#include "ml/gan/zip_check.h"

#include <zlib.h>

#include <cstdint>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::ml {
namespace {

using ::testing::HasSubstr;

void Append(uint64_t value, int size, std::string* out) {
  for (int i = 0; i < size; ++i, value >>= 8) {
    out->push_back(static_cast<char>(value & 0xff));
  }
}

std::string Deflate(const std::string& data) {
  z_stream stream = {};
  EXPECT_EQ(
      deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
      Z_OK);
  std::string in = data;
  std::string out(deflateBound(&stream, in.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

uint32_t Crc(const std::string& data) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
}

struct ZipOptions {
  std::string name = "member";
  std::string data = "some data";
  std::string comment;
  int method = 0;
  int flags = 0;
  int64_t size_in_directory = -1;  // -1: right.
  int64_t entries = 1;
  int64_t header_offset = 0;
  int64_t directory_offset = -1;
  bool zip64 = false;
};

// Returns a ZIP file with one member, written by the book.
std::string MakeZip(const ZipOptions& options = {}) {
  const std::string stored =
      options.method == 8 ? Deflate(options.data) : options.data;
  const uint64_t size = options.size_in_directory < 0
                            ? options.data.size()
                            : options.size_in_directory;
  const uint64_t stored_size = options.method == 8 ? stored.size() : size;
  std::string out;
  Append(0x04034b50, 4, &out);
  Append(20, 2, &out);
  Append(options.flags, 2, &out);
  Append(options.method, 2, &out);
  Append(0, 4, &out);  // Time and date.
  Append(Crc(options.data), 4, &out);
  Append(stored.size(), 4, &out);
  Append(options.data.size(), 4, &out);
  Append(options.name.size(), 2, &out);
  Append(0, 2, &out);
  out += options.name + stored;

  const uint64_t directory = out.size();
  Append(0x02014b50, 4, &out);
  Append(20, 2, &out);
  Append(20, 2, &out);
  Append(options.flags, 2, &out);
  Append(options.method, 2, &out);
  Append(0, 4, &out);
  Append(Crc(options.data), 4, &out);
  Append(options.zip64 ? 0xffffffff : stored_size, 4, &out);
  Append(options.zip64 ? 0xffffffff : size, 4, &out);
  Append(options.name.size(), 2, &out);
  Append(options.zip64 ? 28 : 0, 2, &out);
  Append(0, 2, &out);  // Comment.
  Append(0, 8, &out);  // Disk and attributes.
  Append(options.zip64 ? 0xffffffff : options.header_offset, 4, &out);
  out += options.name;
  if (options.zip64) {
    Append(1, 2, &out);
    Append(24, 2, &out);
    Append(size, 8, &out);
    Append(stored_size, 8, &out);
    Append(options.header_offset, 8, &out);
  }

  const uint64_t end = out.size();
  const uint64_t offset =
      options.directory_offset < 0 ? directory : options.directory_offset;
  if (options.zip64) {
    Append(0x06064b50, 4, &out);
    Append(44, 8, &out);
    Append(45, 2, &out);
    Append(45, 2, &out);
    Append(0, 8, &out);  // Disks.
    Append(options.entries, 8, &out);
    Append(options.entries, 8, &out);
    Append(end - directory, 8, &out);
    Append(offset, 8, &out);
    Append(0x07064b50, 4, &out);
    Append(0, 4, &out);
    Append(end, 8, &out);
    Append(1, 4, &out);
  }
  Append(0x06054b50, 4, &out);
  Append(0, 4, &out);  // Disks.
  Append(options.zip64 ? 0xffff : options.entries, 2, &out);
  Append(options.zip64 ? 0xffff : options.entries, 2, &out);
  Append(options.zip64 ? 0xffffffff : end - directory, 4, &out);
  Append(options.zip64 ? 0xffffffff : offset, 4, &out);
  Append(options.comment.size(), 2, &out);
  return out + options.comment;
}

TEST(ZipCheckTest, AcceptsGoodFiles) {
  EXPECT_EQ(CheckZipArchive(MakeZip()), absl::OkStatus());
  EXPECT_EQ(CheckZipArchive(MakeZip({.zip64 = true})), absl::OkStatus());
  EXPECT_EQ(CheckZipArchive(MakeZip({.comment = "a comment"})),
            absl::OkStatus());
  EXPECT_EQ(CheckZipArchive(MakeZip({.data = ""})), absl::OkStatus());
  for (const bool zip64 : {false, true}) {
    for (const size_t size : {0, 1, 100000}) {
      EXPECT_EQ(
          CheckZipArchive(MakeZip(
              {.data = std::string(size, 'x'), .method = 8, .zip64 = zip64})),
          absl::OkStatus());
    }
  }
}

TEST(ZipCheckTest, RefusesEveryTruncation) {
  for (const bool zip64 : {false, true}) {
    const std::string zip = MakeZip({.zip64 = zip64});
    for (size_t size = 0; size < zip.size(); ++size) {
      EXPECT_FALSE(CheckZipArchive(zip.substr(0, size)).ok()) << size;
    }
  }
}

TEST(ZipCheckTest, RefusesEveryFlippedBitThatMatters) {
  const std::string zip = MakeZip();
  const size_t data = 30 + 6;
  for (size_t i = 0; i < data + 9; ++i) {
    // The version, time and date of the local header mean nothing here.
    if ((i >= 4 && i < 6) || (i >= 10 && i < 14)) continue;
    // Flags other than "encrypted" and "sizes follow" say nothing about bytes.
    if (i == 6 || i == 7) continue;
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = zip;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      EXPECT_FALSE(CheckZipArchive(bad).ok()) << "byte " << i << " bit " << bit;
    }
  }
}

TEST(ZipCheckTest, RefusesDamagedDeflatedData) {
  const std::string data = "some data, some more data, and yet more data";
  const std::string zip = MakeZip({.data = data, .method = 8});
  const size_t begin = 30 + 6;
  for (size_t i = begin; i < begin + Deflate(data).size(); ++i) {
    std::string bad = zip;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    EXPECT_FALSE(CheckZipArchive(bad).ok()) << "byte " << i;
  }
  // A bomb, and one that says that it is none.
  const std::string zeros(kMaxInflatedBytes + 1, '\0');
  EXPECT_EQ(CheckZipArchive(MakeZip({.data = zeros, .method = 8})).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(CheckZipArchive(
                MakeZip({.data = zeros, .method = 8, .size_in_directory = 10}))
                .code(),
            absl::StatusCode::kDataLoss);
}

TEST(ZipCheckTest, SaysWhatIsWrong) {
  const auto message = [](const std::string& zip) {
    return std::string(CheckZipArchive(zip).message());
  };
  EXPECT_EQ(CheckZipArchive("").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckZipArchive(std::string(1000, 'x')).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckZipArchive(MakeZip({.method = 9})).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(CheckZipArchive(MakeZip({.flags = 1})).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_THAT(message(MakeZip({.header_offset = 1})),
              HasSubstr("at byte 1: expected the header of member"));
  EXPECT_THAT(message(MakeZip({.directory_offset = 3})),
              HasSubstr("at byte 3: expected a directory entry"));
  EXPECT_THAT(message(MakeZip({.entries = 2})),
              HasSubstr("expected a directory entry"));
  EXPECT_THAT(message(MakeZip({.entries = 0})),
              HasSubstr("the directory does not end where it should"));
  EXPECT_THAT(message(MakeZip({.size_in_directory = 1 << 20})),
              HasSubstr("reaches beyond the file"));
  std::string flipped = MakeZip();
  flipped[38] ^= 1;
  EXPECT_THAT(message(flipped),
              HasSubstr("at byte 36: the 9 bytes of member do not match"));
}

TEST(ZipCheckTest, HugeNumbersDoNotOverflow) {
  for (const int64_t huge :
       {int64_t{-1}, std::numeric_limits<int64_t>::max(), int64_t{1} << 62}) {
    ZipOptions options = {.zip64 = true};
    options.entries = huge;
    EXPECT_FALSE(CheckZipArchive(MakeZip(options)).ok());
    options = {.zip64 = true};
    options.header_offset = huge;
    EXPECT_FALSE(CheckZipArchive(MakeZip(options)).ok());
    if (huge < 0) continue;
    options = {.zip64 = true};
    options.directory_offset = huge;
    EXPECT_FALSE(CheckZipArchive(MakeZip(options)).ok());
    options = {.zip64 = true};
    options.size_in_directory = huge;
    EXPECT_FALSE(CheckZipArchive(MakeZip(options)).ok());
  }
}

}  // namespace
}  // namespace miniray::ml
