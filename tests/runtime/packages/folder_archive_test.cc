#include "runtime/packages/folder_archive.h"

#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/archive.pb.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

void Write(const std::string& path, const std::string& text,
           mode_t mode = 0644) {
  ASSERT_THAT(WriteFileAtomically(path, text, mode), IsOk());
}

mode_t ModeOf(const std::string& path) {
  struct stat st;
  EXPECT_EQ(stat(path.c_str(), &st), 0) << path;
  return st.st_mode & 0777;
}

class FolderArchiveTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(mkdir(source().c_str(), 0755), 0); }

  std::string source() const { return temp_ / "source"; }
  std::string target() const { return temp_ / "target"; }
  std::string archive() const { return temp_ / "archive"; }

  // An archive of hand-made records.
  void WriteArchive(const std::vector<v1::ArchiveEntry>& entries,
                    const std::string& data = "") {
    std::string bytes;
    const auto add = [&bytes](const v1::ArchiveRecord& record) {
      const std::string text = record.SerializeAsString();
      for (int i = 0; i < 4; ++i) {
        bytes.push_back(static_cast<char>(text.size() >> (8 * i)));
      }
      bytes += text;
    };
    v1::ArchiveRecord record;
    record.mutable_header()->set_version(1);
    add(record);
    for (const v1::ArchiveEntry& entry : entries) {
      *record.mutable_entry() = entry;
      add(record);
    }
    if (!data.empty()) {
      record.set_data(data);
      add(record);
    }
    record.mutable_end()->set_entries(static_cast<int64_t>(entries.size()));
    add(record);
    Write(archive(), bytes);
  }
  static v1::ArchiveEntry Entry(v1::ArchiveEntry::Kind kind,
                                const std::string& path,
                                const std::string& target = "",
                                int64_t size = 0) {
    v1::ArchiveEntry entry;
    entry.set_kind(kind);
    entry.set_path(path);
    entry.set_target(target);
    entry.set_size(size);
    entry.set_mode(0644);
    return entry;
  }

  TempFolder temp_;
};

TEST_F(FolderArchiveTest, KeepsContentModesLinksAndEmptyFolders) {
  const std::string large(3 << 20, 'x');
  Write(source() + "/run.sh", "#!/bin/sh\n", 0755);
  Write(source() + "/empty", "", 0600);
  ASSERT_EQ(mkdir((source() + "/data").c_str(), 0755), 0);
  Write(source() + "/data/large", large);
  Write(source() + "/data.txt", "text");
  ASSERT_EQ(mkdir((source() + "/none").c_str(), 0755), 0);
  ASSERT_EQ(symlink("data/large", (source() + "/link").c_str()), 0);

  const auto packed = PackFolder(source(), archive());
  ASSERT_THAT(packed, IsOk());
  EXPECT_EQ(packed->entries, 7);
  EXPECT_EQ(packed->bytes, (3 << 20) + 14);
  const auto unpacked = UnpackFolder(archive(), target());
  ASSERT_THAT(unpacked, IsOk());
  EXPECT_EQ(unpacked->entries, packed->entries);
  EXPECT_EQ(unpacked->bytes, packed->bytes);

  EXPECT_EQ(ReadFile(target() + "/data/large").value(), large);
  EXPECT_EQ(ReadFile(target() + "/data.txt").value(), "text");
  EXPECT_EQ(ReadFile(target() + "/link").value(), large);
  EXPECT_TRUE(std::filesystem::is_symlink(target() + "/link"));
  EXPECT_TRUE(std::filesystem::is_directory(target() + "/none"));
  EXPECT_EQ(ModeOf(target() + "/run.sh"), 0755);
  EXPECT_EQ(ModeOf(target() + "/empty"), 0600);
}

TEST_F(FolderArchiveTest, SameFolderSameBytes) {
  for (const char* copy : {"one", "two"}) {
    const std::string folder = temp_ / copy;
    ASSERT_EQ(mkdir(folder.c_str(), 0755), 0);
    // In another order, and at another time.
    std::vector<std::string> names = {"b", "a", "c"};
    if (folder.back() == 'o') names = {"c", "b", "a"};
    for (const std::string& name : names) {
      Write(absl::StrCat(folder, "/", name), name);
      const timeval times[2] = {{copy[0], 0}, {copy[0], 0}};
      utimes(absl::StrCat(folder, "/", name).c_str(), times);
    }
    ASSERT_THAT(PackFolder(folder, absl::StrCat(folder, ".archive")), IsOk());
  }
  EXPECT_EQ(Sha256OfFile(temp_ / "one.archive").value(),
            Sha256OfFile(temp_ / "two.archive").value());
  Write(temp_ / "two/a", "b");
  ASSERT_THAT(PackFolder(temp_ / "two", temp_ / "three.archive"), IsOk());
  EXPECT_NE(Sha256OfFile(temp_ / "one.archive").value(),
            Sha256OfFile(temp_ / "three.archive").value());
}

TEST_F(FolderArchiveTest, LeavesOutGitAndWhatIsNoFile) {
  ASSERT_EQ(mkdir((source() + "/.git").c_str(), 0755), 0);
  Write(source() + "/.git/HEAD", "x");
  Write(source() + "/.gitignore", "x");
  ASSERT_EQ(mkfifo((source() + "/pipe").c_str(), 0644), 0);
  ASSERT_THAT(PackFolder(source(), archive()), IsOk());
  ASSERT_THAT(UnpackFolder(archive(), target()), IsOk());
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(target())) {
    names.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(names, UnorderedElementsAre(".gitignore"));
}

TEST_F(FolderArchiveTest, BeyondTheSizeTheLargestFilesAreNamed) {
  Write(source() + "/small", std::string(10, 'x'));
  Write(source() + "/large", std::string(3 << 20, 'x'));
  EXPECT_THAT(PackFolder(source(), archive(), {.max_bytes = 1 << 20}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("3.0 MiB"), HasSubstr("limit is 1.0"),
                             HasSubstr("large (3.0 MiB), small"))));
  EXPECT_FALSE(std::filesystem::exists(archive()));
  EXPECT_THAT(PackFolder(source(), archive(), {.max_entries = 1}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("more than 1 files")));
}

TEST_F(FolderArchiveTest, ReceiverHasLimitsOfItsOwn) {
  Write(source() + "/a", std::string(100, 'x'));
  Write(source() + "/b", std::string(100, 'x'));
  ASSERT_THAT(PackFolder(source(), archive()), IsOk());
  EXPECT_THAT(UnpackFolder(archive(), target(), {.max_bytes = 150}),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(UnpackFolder(archive(), target(), {.max_entries = 1}),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_FALSE(std::filesystem::exists(target()));
}

TEST_F(FolderArchiveTest, NothingIsWrittenOutside) {
  using E = v1::ArchiveEntry;
  const std::string outside = temp_ / "outside";
  ASSERT_EQ(mkdir(outside.c_str(), 0755), 0);
  const std::vector<std::vector<E>> attacks = {
      {Entry(E::KIND_FOLDER, "..")},
      {Entry(E::KIND_FILE, "../outside/x")},
      {Entry(E::KIND_FILE, outside + "/x")},
      {Entry(E::KIND_FOLDER, "a"), Entry(E::KIND_FILE, "a/../../outside/x")},
      {Entry(E::KIND_SYMLINK, "a", outside), Entry(E::KIND_FILE, "a/x")},
      {Entry(E::KIND_SYMLINK, "a", outside), Entry(E::KIND_FOLDER, "a/x")},
      {Entry(E::KIND_SYMLINK, "a", outside), Entry(E::KIND_FOLDER, "a"),
       Entry(E::KIND_FILE, "a/x")},
      {Entry(E::KIND_SYMLINK, "a", outside + "/x"), Entry(E::KIND_FILE, "a")},
      {Entry(E::KIND_FILE, "a/x")},
      {Entry(E::KIND_FILE, "a//x")},
      {Entry(E::KIND_FILE, "")},
      {Entry(E::KIND_FILE, std::string("a\0b", 3))},
      {Entry(E::KIND_FILE, "a", "", -1)},
      {Entry(E::KIND_UNSPECIFIED, "a")},
  };
  for (const std::vector<E>& attack : attacks) {
    WriteArchive(attack);
    EXPECT_THAT(UnpackFolder(archive(), target()), Not(IsOk()))
        << attack.back().DebugString();
    EXPECT_TRUE(std::filesystem::is_empty(outside));
    EXPECT_FALSE(std::filesystem::exists(target()));
  }
}

TEST_F(FolderArchiveTest, DataMustFit) {
  using E = v1::ArchiveEntry;
  WriteArchive({Entry(E::KIND_FILE, "a", "", 3)}, "abc");
  EXPECT_THAT(UnpackFolder(archive(), target()), IsOk());
  EXPECT_EQ(ReadFile(target() + "/a").value(), "abc");
  std::filesystem::remove_all(target());
  for (const int size : {0, 2, 4}) {
    WriteArchive({Entry(E::KIND_FILE, "a", "", size)}, "abc");
    EXPECT_THAT(UnpackFolder(archive(), target()),
                StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST_F(FolderArchiveTest, DamagedBytesAreAnError) {
  Write(source() + "/a", std::string(100, 'x'));
  ASSERT_EQ(mkdir((source() + "/b").c_str(), 0755), 0);
  Write(source() + "/b/c", std::string(100, 'y'));
  ASSERT_THAT(PackFolder(source(), archive()), IsOk());
  const std::string good = ReadFile(archive()).value();
  for (size_t length = 0; length < good.size(); ++length) {
    Write(archive(), good.substr(0, length));
    ASSERT_THAT(UnpackFolder(archive(), target()),
                StatusIs(absl::StatusCode::kDataLoss))
        << length;
  }
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    std::string bytes = good;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    Write(archive(), bytes);
    // Whatever it is taken for, it stays in its folder.
    (void)UnpackFolder(archive(), target());
    std::filesystem::remove_all(target());
    ASSERT_THAT(temp_.List(), UnorderedElementsAre("archive", "source"));
  }
}

TEST_F(FolderArchiveTest, MissingFolder) {
  EXPECT_THAT(PackFolder(temp_ / "no", archive()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no")));
  EXPECT_THAT(UnpackFolder(temp_ / "no", target()),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace miniray
