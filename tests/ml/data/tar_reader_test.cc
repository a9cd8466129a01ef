#include "ml/data/tar_reader.h"

#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status_macros.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kDataLoss;
using ::testing::ElementsAre;
using ::testing::SizeIs;

struct Found {
  TarMember member;
  std::string data;  // Of files.
};

class TarReaderTest : public ::testing::Test {
 protected:
  // Reads all members of an archive. read: of files, this share of the data.
  absl::StatusOr<std::vector<Found>> ReadAll(const std::string& bytes,
                                             double read = 1) {
    path_ = WriteTestFile(dir_, "archive", bytes);
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source,
                        ByteSource::Open(path_));
    TarReader reader(source.get());
    std::vector<Found> all;
    while (true) {
      MR_ASSIGN_OR_RETURN(std::optional<TarMember> member, reader.Next());
      if (!member.has_value()) return all;
      Found found = {.member = *std::move(member)};
      if (found.member.is_file) {
        found.data.resize(
            static_cast<size_t>(read * static_cast<double>(found.member.size)));
        MR_RETURN_IF_ERROR(source->Read(found.data.data(),
                                        static_cast<int64_t>(found.data.size()),
                                        "data"));
      }
      all.push_back(std::move(found));
    }
  }

  const std::string dir_ = MakeTestFolder();
  std::string path_;
};

TEST_F(TarReaderTest, ReadsMembersInOrder) {
  // Sizes around that of a block.
  const std::string archive =
      TarMemberBytes("folder/", "", '5') +
      TarMemberBytes("folder/one", CountingBytes(511)) +
      TarMemberBytes("folder/two", CountingBytes(512)) +
      TarMemberBytes("empty", "") +
      TarMemberBytes("three", CountingBytes(513), '\0') + TarEnd();
  for (const std::string& bytes : {archive, Gzip(archive)}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<Found> all, ReadAll(bytes));
    ASSERT_THAT(all, SizeIs(5));
    EXPECT_EQ(all[0].member.name, "folder/");
    EXPECT_FALSE(all[0].member.is_file);
    EXPECT_EQ(all[1].member.name, "folder/one");
    EXPECT_EQ(all[1].data, CountingBytes(511));
    EXPECT_EQ(all[2].data, CountingBytes(512));
    EXPECT_EQ(all[3].member.size, 0);
    EXPECT_TRUE(all[3].member.is_file);
    EXPECT_EQ(all[4].member.name, "three");
    EXPECT_EQ(all[4].data, CountingBytes(513));
  }
}

TEST_F(TarReaderTest, PassesOverWhatWasNotRead) {
  const std::string archive = TarMemberBytes("one", CountingBytes(1000)) +
                              TarMemberBytes("two", CountingBytes(3000)) +
                              TarEnd();
  for (const double read : {0.0, 0.5}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<Found> all, ReadAll(archive, read));
    ASSERT_THAT(all, SizeIs(2));
    EXPECT_EQ(all[1].member.name, "two");
    EXPECT_EQ(all[1].data, CountingBytes(static_cast<int64_t>(3000 * read)));
  }
}

TEST_F(TarReaderTest, KnowsLongNames) {
  const std::string name(150, 'n');
  const std::string path = "folder/" + name;
  // POSIX: the folder lies in a field of its own.
  std::string header =
      TarMemberBytes(name.substr(0, 100), "", '0', /*posix=*/true);
  header.replace(345, 6, "folder");
  const std::string with_prefix = WithTarChecksum(header);
  const std::string gnu = TarMemberBytes("././@LongLink", path + '\0', 'L') +
                          TarMemberBytes(path.substr(0, 100), "data");
  // "LENGTH path=PATH\n" with 157 letters of path: 5 + 157 + 1, and the length
  // itself with a blank, 3 + 1: 167.
  const std::string records =
      "13 a=b=c def\n"
      "167 path=" +
      path + "\n";
  const std::string pax = TarMemberBytes("PaxHeaders/x", records, 'x', true) +
                          TarMemberBytes("short", "data", '0', true);
  ASSERT_OK_AND_ASSIGN(const std::vector<Found> all,
                       ReadAll(with_prefix + gnu + pax + TarEnd()));
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_EQ(all[0].member.name, "folder/" + name.substr(0, 100));
  EXPECT_EQ(all[1].member.name, path);
  EXPECT_EQ(all[1].data, "data");
  EXPECT_EQ(all[2].member.name, path);
  EXPECT_EQ(all[2].data, "data");
}

TEST_F(TarReaderTest, APaxSizeIsTheMembers) {
  // The header's own says 0.
  std::string member = TarMemberBytes("one", CountingBytes(700), '0', true);
  std::string header = member.substr(0, 512);
  header.replace(124, 11, "00000000000");
  member.replace(0, 512, WithTarChecksum(header));
  ASSERT_OK_AND_ASSIGN(
      const std::vector<Found> all,
      ReadAll(TarMemberBytes("x", "12 size=700\n", 'x', true) + member +
              TarMemberBytes("two", "2", '0', true) + TarEnd()));
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].data, CountingBytes(700));
  EXPECT_EQ(all[1].data, "2");
}

TEST_F(TarReaderTest, PassesOverGlobalHeadersAndLinks) {
  ASSERT_OK_AND_ASSIGN(
      const std::vector<Found> all,
      ReadAll(TarMemberBytes("g", "13 comment=x\n", 'g', true) +
              TarMemberBytes("link", "", '2', true) +
              TarMemberBytes("file", "1", '0', true) + TarEnd()));
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].member.name, "link");
  EXPECT_FALSE(all[0].member.is_file);
  EXPECT_EQ(all[1].data, "1");
}

TEST_F(TarReaderTest, RejectsWhatIsNoArchive) {
  ExpectError(ReadAll(CountingBytes(600)).status(), kDataLoss,
              {path_, "at byte 0: no tar header", "'ustar'"});
  // The magic of a later header.
  std::string bytes =
      TarMemberBytes("one", "1") + TarMemberBytes("two", "2") + TarEnd();
  bytes[1024 + 257] = 'x';
  ExpectError(ReadAll(bytes).status(), kDataLoss, {"at byte 1024: no tar"});
  ExpectError(ReadAll(Gzip(bytes)).status(), kDataLoss,
              {"at byte 1024 of the decompressed data: no tar header"});
}

TEST_F(TarReaderTest, RejectsAWrongChecksum) {
  std::string bytes = TarMemberBytes("one", "1") + TarEnd();
  bytes[0] = 'p';  // One more than 'o'.
  ExpectError(ReadAll(bytes).status(), kDataLoss,
              {path_, "at byte 0: a damaged tar header", "checksum"});
  bytes.replace(148, 8, "    \0   ", 8);
  ExpectError(ReadAll(bytes).status(), kDataLoss, {"no number"});
}

TEST_F(TarReaderTest, RejectsAnArchiveThatEndsEarly) {
  const std::string bytes = TarMemberBytes("one", CountingBytes(600));
  ExpectError(ReadAll(bytes.substr(0, 300)).status(), kDataLoss,
              {path_, "at byte 300: truncated", "a tar header from byte 0"});
  ExpectError(ReadAll(bytes.substr(0, 1000)).status(), kDataLoss,
              {"at byte 0: ", "'one' has 600 bytes; at most 488 can follow"});
  // Without the padding, and without what ends an archive.
  ExpectError(ReadAll(bytes.substr(0, 1112)).status(), kDataLoss,
              {"at byte 1112: truncated"});
  ExpectError(ReadAll(bytes).status(), kDataLoss,
              {"at byte 1536: truncated", "a tar header"});
  const std::string zipped = Gzip(bytes + TarEnd());
  ExpectError(ReadAll(zipped.substr(0, zipped.size() - 9)).status(), kDataLoss,
              {path_, "the gzip data break off at byte"});
  ExpectError(ReadAll(TarMemberBytes("L", "name", 'L') + TarEnd()).status(),
              kDataLoss, {"expected the member"});
}

TEST_F(TarReaderTest, VerifiesTheChecksumOfGzip) {
  std::string bytes = Gzip(TarMemberBytes("one", "1") + TarEnd());
  bytes[bytes.size() - 8] ^= 1;  // The first byte of the CRC-32.
  ExpectError(ReadAll(bytes).status(), kDataLoss,
              {path_, "damaged gzip data", "incorrect data check"});
}

TEST_F(TarReaderTest, RejectsSizesThatCannotBe) {
  const std::string member = TarMemberBytes("one", "1");
  std::string header = member.substr(0, 512);
  header.replace(124, 11, "77777777777");
  ExpectError(
      ReadAll(WithTarChecksum(header) + member.substr(512) + TarEnd()).status(),
      kDataLoss, {"at byte 0", "'one' has 8589934591 bytes; at most 1536"});
  header.replace(124, 11, "00000000008");
  ExpectError(ReadAll(WithTarChecksum(header)).status(), kDataLoss,
              {"at byte 0", "'one' is not octal digits"});
  header[124] = '\x80';  // GNU's binary numbers.
  ExpectError(ReadAll(WithTarChecksum(header)).status(), kDataLoss,
              {"is not octal digits"});
  ExpectError(ReadAll(TarMemberBytes("L", CountingBytes(70000), 'L')).status(),
              kDataLoss, {"70000 bytes of names", "at most 65536"});
}

TEST_F(TarReaderTest, NamesInMessagesAreLegible) {
  // A line of its own, and a terminal's control sequence.
  const std::string name = "a\n\x1b[2J\xff";
  std::string header = TarMemberBytes(name, "1").substr(0, 512);
  header.replace(124, 11, "77777777777");
  ExpectError(ReadAll(WithTarChecksum(header)).status(), kDataLoss,
              {"member 'a\\n\\x1b[2J\\xff' has 8589934591 bytes"});
  header.replace(124, 11, "00000000008");
  ExpectError(ReadAll(WithTarChecksum(header)).status(), kDataLoss,
              {"member 'a\\n\\x1b[2J\\xff' is not octal digits"});
}

// Of a huge gzip file nobody knows how much can follow.
class EndlessSource : public ByteSource {
 public:
  explicit EndlessSource(std::string bytes)
      : ByteSource("endless"), bytes_(std::move(bytes)) {}

  int64_t max_remaining() const override {
    return std::numeric_limits<int64_t>::max() - offset();
  }
  bool compressed() const override { return true; }

 protected:
  absl::StatusOr<int64_t> ReadSome(void* out, int64_t size) override {
    const size_t count =
        bytes_.copy(static_cast<char*>(out), static_cast<size_t>(size), read_);
    read_ += count;
    return static_cast<int64_t>(count);
  }

 private:
  const std::string bytes_;
  size_t read_ = 0;
};

TEST_F(TarReaderTest, RejectsASizeThatNoOffsetCanPass) {
  // 2^63 - 1 - 2000: it could follow, but the next header's offset, past the
  // 1536 bytes before it, would be no number. 3 + 5 + 19 digits + 1 is 28.
  EndlessSource source(
      TarMemberBytes("x", "28 size=9223372036854773807\n", 'x', true) +
      TarMemberBytes("one", "1", '0', true));
  TarReader reader(&source);
  ExpectError(reader.Next().status(), kDataLoss,
              {"endless: at byte 1024", "'one' has 9223372036854773807 bytes",
               "can follow"});
}

TEST_F(TarReaderTest, RejectsDamagedPaxHeaders) {
  for (const char* records :
       {"path=x\n", "10 path\n", "99 path=x\n", "8 path=x\n", "x path=x\n",
        "-1 path=x\n", "0 path=x\n"}) {
    ExpectError(ReadAll(TarMemberBytes("x", records, 'x', true) +
                        TarMemberBytes("one", "1", '0', true) + TarEnd())
                    .status(),
                kDataLoss, {"at byte 0: a damaged pax header"});
  }
  ExpectError(ReadAll(TarMemberBytes("x", "11 size=-1\n", 'x', true) +
                      TarMemberBytes("one", "1", '0', true) + TarEnd())
                  .status(),
              kDataLoss, {"no number of bytes"});
}

}  // namespace
}  // namespace miniray::ml
