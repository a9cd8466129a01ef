#include "runtime/worker/log_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>  // NOLINT(build/c++11)

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// While it lives, files beyond so many bytes are an error, like a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  const sighandler_t handler_;
};

class LogFileTest : public testing::Test {
 protected:
  LogFile Open(int64_t max_bytes, int max_files) {
    auto file =
        LogFile::Open(path_, {.max_bytes = max_bytes, .max_files = max_files});
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }

  std::string Text(const std::string& suffix = "") {
    return ReadFile(path_ + suffix).value_or("none");
  }

  // All that is there from the last `lines` lines on.
  std::string Tail(int64_t lines) {
    auto reader = LogReader::Open(path_, lines);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return ReadOn(&*reader);
  }

  static std::string ReadOn(LogReader* reader) {
    std::string text;
    while (true) {
      auto bytes = reader->Read(3);
      EXPECT_TRUE(bytes.ok()) << bytes.status();
      if (!bytes.ok() || bytes->empty()) return text;
      text += *bytes;
    }
  }

  TempFolder folder_;
  const std::string path_ = folder_.path() + "/a.log";
};

TEST_F(LogFileTest, FullFilesMoveAsideAndTheOldestGo) {
  LogFile file = Open(10, 3);
  for (int i = 0; i < 8; ++i) file.Append(absl::StrCat("line", i, "\n"));
  EXPECT_EQ(Text(), "line7\n");
  EXPECT_EQ(Text(".1"), "line6\n");
  EXPECT_EQ(Text(".2"), "line5\n");
  EXPECT_EQ(Text(".3"), "none");
}

TEST_F(LogFileTest, FilesEndWithAWholeLineWhereTheyCan) {
  LogFile file = Open(10, 5);
  file.Append("abc\ndef\nghi\njkl\n");
  EXPECT_EQ(Text(".1"), "abc\ndef\n");
  EXPECT_EQ(Text(), "ghi\njkl\n");
  file.Append("0123456789012345\n");
  EXPECT_EQ(Tail(0), "abc\ndef\nghi\njkl\n0123456789012345\n");
}

TEST_F(LogFileTest, OneFileIsOverwritten) {
  LogFile file = Open(6, 1);
  file.Append("abc\ndef\nghi\n");
  EXPECT_EQ(Text(), "ghi\n");
  EXPECT_EQ(Text(".1"), "none");
  auto reader = LogReader::Open(path_, 0);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(ReadOn(&*reader), "ghi\n");
  EXPECT_EQ(reader->TakeLost(), 8);
  file.Append("jkl\nmno\n");
  EXPECT_EQ(ReadOn(&*reader), "mno\n");
  EXPECT_EQ(reader->TakeLost(), 4);
}

TEST_F(LogFileTest, AFullDiskIsCountedAndSaid) {
  auto file = LogFile::Open("/dev/full", {});
  ASSERT_TRUE(file.ok());
  file->Append("12345");
  file->Append("678");
  EXPECT_EQ(file->lost_bytes(), 8);
  const LostOutput lost = LostOutputOf("/dev/full");
  EXPECT_EQ(lost.bytes, 8);
  EXPECT_EQ(lost.unsaid_bytes, 8);
  EXPECT_EQ(lost.ToString(),
            "output lost: No space left on device in /dev, 8 bytes");
  EXPECT_EQ(LostOutputOf(path_).ToString(), "");
}

TEST_F(LogFileTest, WhatWasLostLastIsSaidAtTheEndIfThereIsRoom) {
  LogFile file = Open(1000, 2);
  file.Append("first\n");
  {
    const FileSizeLimit limit(8);
    file.Append("second\n");  // Of which two bytes have room.
    EXPECT_EQ(LostOutputOf(path_).unsaid_bytes, 5);
    file.Finish();
    EXPECT_EQ(LostOutputOf(path_).unsaid_bytes, 5);
  }
  file.Finish();
  EXPECT_EQ(Text(),
            "first\nse[miniray: 5 bytes of output were lost here: File too "
            "large]\n");
  EXPECT_EQ(LostOutputOf(path_).unsaid_bytes, 0);
  EXPECT_EQ(LostOutputOf(path_).bytes, 5);
}

TEST_F(LogFileTest, AReaderKnowsWhereItIs) {
  LogFile file = Open(10, 2);
  file.Append("one\ntwo\n");
  auto reader = LogReader::Open(path_, 0);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->Position(), 0);
  EXPECT_EQ(ReadOn(&*reader), "one\ntwo\n");
  EXPECT_EQ(reader->Position(), 8);
  file.Append("three\n");
  file.Append("four\n");
  file.Append("five\n");  // What was written first has made way.
  reader = LogReader::Open(path_, 2);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->Position(), 14);
  EXPECT_EQ(ReadOn(&*reader), "four\nfive\n");
  EXPECT_EQ(reader->Position(), 24);
}

TEST_F(LogFileTest, AnUnwritablePlaceIsAnError) {
  EXPECT_THAT(LogFile::Open("/no/such/a.log", {}).status().ToString(),
              HasSubstr("/no/such/a.log"));
}

TEST_F(LogFileTest, TheTailIsCountedInLinesOverFiles) {
  LogFile file = Open(10, 9);
  for (int i = 0; i < 6; ++i) file.Append(absl::StrCat("line", i, "\n"));
  EXPECT_EQ(Tail(1), "line5\n");
  EXPECT_EQ(Tail(3), "line3\nline4\nline5\n");
  EXPECT_EQ(Tail(100), "line0\nline1\nline2\nline3\nline4\nline5\n");
  file.Append("open");
  EXPECT_EQ(Tail(1), "open");
  EXPECT_EQ(Tail(2), "line5\nopen");
}

TEST_F(LogFileTest, AReaderFollowsOverRotations) {
  LogFile file = Open(10, 9);
  file.Append("one\n");
  auto reader = LogReader::Open(path_, 0);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(ReadOn(&*reader), "one\n");
  EXPECT_EQ(ReadOn(&*reader), "");
  file.Append("two\n");
  file.Append("three\n");
  file.Append("four\n");
  file.Append("five\n");
  EXPECT_EQ(ReadOn(&*reader), "two\nthree\nfour\nfive\n");
  EXPECT_EQ(ReadOn(&*reader), "");
}

TEST_F(LogFileTest, AReaderThatWasOvertakenGoesOnWithTheOldest) {
  LogFile file = Open(6, 2);
  file.Append("one\n");
  auto reader = LogReader::Open(path_, 0);
  ASSERT_TRUE(reader.ok());
  for (const char* line : {"two\n", "three\n", "four\n", "five\n"}) {
    file.Append(line);
  }
  // What the open file still holds, then what is kept.
  EXPECT_EQ(ReadOn(&*reader), "one\nfour\nfive\n");
  EXPECT_EQ(reader->TakeLost(), 10);  // "two\nthree\n"
  EXPECT_EQ(reader->TakeLost(), 0);
  file.Append("six\n");
  EXPECT_EQ(ReadOn(&*reader), "six\n");
  EXPECT_EQ(reader->TakeLost(), 0);
  // One that comes late.
  auto late = LogReader::Open(path_, 0);
  ASSERT_TRUE(late.ok());
  EXPECT_EQ(ReadOn(&*late), "five\nsix\n");
  EXPECT_EQ(late->TakeLost(), 19);
  // Who asked for the end misses nothing of what came before.
  auto tail = LogReader::Open(path_, 1);
  ASSERT_TRUE(tail.ok());
  EXPECT_EQ(ReadOn(&*tail), "six\n");
  EXPECT_EQ(tail->TakeLost(), 0);
  for (const char* line : {"seven\n", "eight\n", "nine\n"}) file.Append(line);
  EXPECT_EQ(ReadOn(&*tail), "eight\nnine\n");
  EXPECT_EQ(tail->TakeLost(), 6);
}

TEST_F(LogFileTest, ALogIsThereWhileItIsRotated) {
  const std::string path = folder_.path() + "/Counter-actor-12.0.log";
  auto file = LogFile::Open(path, {.max_bytes = 6, .max_files = 3});
  ASSERT_TRUE(file.ok()) << file.status();
  std::atomic<bool> done = false;
  std::thread writer([&] {
    while (!done) file->Append("line\n");
  });
  int missing = 0;
  for (int i = 0; i < 2000; ++i) {
    if (FindActorLogs(folder_.path(), "actor-12").empty()) ++missing;
    if (!LogReader::Open(path, 0).ok()) ++missing;
    if (!LogReader::Open(path, 2).ok()) ++missing;
  }
  done = true;
  writer.join();
  EXPECT_EQ(missing, 0);
}

TEST_F(LogFileTest, ALinkIsFollowed) {
  LogFile file = Open(10, 3);
  file.Append("abcdefgh\n");
  file.Append("ijk\n");
  const std::string link = folder_.path() + "/link.log";
  ASSERT_EQ(symlink(path_.c_str(), link.c_str()), 0);
  auto reader = LogReader::Open(link, 0);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(ReadOn(&*reader), "abcdefgh\nijk\n");
}

TEST_F(LogFileTest, ALogThatIsNotThereIsAnError) {
  EXPECT_EQ(LogReader::Open(path_, 0).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(LogReader::Open(path_, 5).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(LogFileTest, TheLogsOfAnActorAreFoundInOrder) {
  for (const char* name : {"Counter-actor-12.10.log", "Counter-actor-12.2.log",
                           "Counter-actor-1.0.log", "Counter-actor-12.0.log",
                           "Counter-actor-12.0.log.1", "notes.txt"}) {
    ASSERT_TRUE(WriteFileAtomically(folder_.path() + "/" + name, "").ok());
  }
  auto path = [&](const std::string& name) {
    return folder_.path() + "/" + name;
  };
  EXPECT_THAT(FindActorLogs(folder_.path(), "actor-12"),
              ElementsAre(Pair(0, path("Counter-actor-12.0.log")),
                          Pair(2, path("Counter-actor-12.2.log")),
                          Pair(10, path("Counter-actor-12.10.log"))));
  EXPECT_THAT(FindActorLogs(folder_.path(), "actor-3"), IsEmpty());
}

}  // namespace
}  // namespace miniray
