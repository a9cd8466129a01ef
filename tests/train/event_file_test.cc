// Event files and what they are made of: checksums, files that only grow.

#include "train/event_file.h"

#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/train/event_file_reader.h"
#include "train/appended_file.h"
#include "train/crc32c.h"

namespace miniray::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

// While it lives, files cannot grow beyond `bytes`: the process's full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    // Without this, the signal would end the process.
    handler_ = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  sighandler_t handler_;
};

TEST(Crc32cTest, IsThatOfTheKnownVectors) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
  // RFC 3720, B.4.
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
}

TEST(Crc32cTest, IsThatOfTheBitwiseRule) {
  std::string bytes;
  for (int i = 0; i < 600; ++i) {
    ASSERT_EQ(Crc32c(bytes), BitwiseCrc32c(bytes)) << i;
    bytes.push_back(static_cast<char>(i * 37 + i / 7));
  }
}

TEST(AppendedFileTest, IsReadWhileItGrows) {
  TempFolder folder;
  auto file = AppendedFile::Open(folder / "f");
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(file->initial_bytes(), 0);
  ASSERT_THAT(file->Append("one\n"), IsOk());
  EXPECT_THAT(ReadFile(folder / "f"), IsOkAndHolds("one\n"));
  ASSERT_THAT(file->Append("two\n"), IsOk());
  EXPECT_THAT(ReadFile(folder / "f"), IsOkAndHolds("one\ntwo\n"));
}

TEST(AppendedFileTest, HasOneWriterAtATime) {
  TempFolder folder;
  {
    auto file = AppendedFile::Open(folder / "f");
    ASSERT_THAT(file, IsOk());
    ASSERT_THAT(file->Append("one\n"), IsOk());
    EXPECT_THAT(AppendedFile::Open(folder / "f"),
                StatusIs(absl::StatusCode::kAlreadyExists,
                         HasSubstr("another training")));
  }
  auto again = AppendedFile::Open(folder / "f");
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->initial_bytes(), 4);
}

TEST(AppendedFileTest, GoesOnWhereAFullDiskHasCutARecord) {
  TempFolder folder;
  auto file = AppendedFile::Open(folder / "f");
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT(file->Append("one\n"), IsOk());
  {
    FullDisk full(6);
    EXPECT_THAT(file->Append("two\n"),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr(folder / "f")));
    EXPECT_THAT(ReadFile(folder / "f"), IsOkAndHolds("one\ntw"));
    EXPECT_FALSE(file->Append("three\n").ok());
    EXPECT_FALSE(file->Flush().ok());
  }
  ASSERT_THAT(file->Append("four\n"), IsOk());
  EXPECT_THAT(ReadFile(folder / "f"), IsOkAndHolds("one\ntwo\nthree\nfour\n"));
}

TEST(AppendedFileTest, ErrorsNameTheFile) {
  TempFolder folder;
  EXPECT_THAT(
      AppendedFile::Open(folder / "no/f"),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder / "no/f")));
}

TEST(EventFileTest, HoldsWhatTensorBoardReads) {
  TempFolder folder;
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  auto file = EventFile::Create(folder.path(), now);
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT(file->AddScalars(0, now + absl::Milliseconds(1500),
                               {{"loss/mean", 0.5}, {"loss/min", 0}}),
              IsOk());
  ASSERT_THAT(file->AddScalars(300, now + absl::Seconds(2),
                               {{"loss/mean", NAN}, {"lo\xFFss", 1e300}}),
              IsOk());

  ASSERT_THAT(folder.List(), SizeIs(1));
  const std::string name = folder.List()[0];
  EXPECT_THAT(name, StartsWith("events.out.tfevents.1700000000."));
  const std::vector<ReadEvent> events = ReadEvents(*ReadFile(folder / name));
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1'700'000'000);
  EXPECT_TRUE(events[0].scalars.empty());
  EXPECT_EQ(events[1].step, 0);
  EXPECT_EQ(events[1].wall_time, 1'700'000'001.5);
  // A zero is there, and not left out as protobuf does with plain fields.
  EXPECT_EQ(events[1].scalars, (std::map<std::string, float>{
                                   {"loss/mean", 0.5f}, {"loss/min", 0.f}}));
  EXPECT_EQ(events[2].step, 300);
  EXPECT_TRUE(std::isnan(events[2].scalars.at("loss/mean")));
  EXPECT_EQ(events[2].scalars.at("lo\xEF\xBF\xBDss"), INFINITY);
}

// The first bytes of a PNG of 3 x 2 pixels, up to its kind of colours.
std::string PngHeader(char colours) {
  std::string png("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\3\0\0\0\2\x08", 25);
  png.push_back(colours);
  return png;
}

TEST(EventFileTest, HoldsImages) {
  TempFolder folder;
  auto file = EventFile::Create(folder.path(), absl::UnixEpoch());
  ASSERT_THAT(file, IsOk());
  // As the PNG says it, and as TensorFlow does.
  const std::map<char, uint64_t> kinds = {{0, 1}, {2, 3}, {4, 2}, {6, 4}};
  for (const auto& [colours, colorspace] : kinds) {
    ASSERT_THAT(file->AddImage(colours, absl::FromUnixSeconds(7), "sam\xffples",
                               PngHeader(colours), 3, 2),
                IsOk());
  }
  const std::vector<ReadEvent> events =
      ReadEvents(*ReadFile(folder / folder.List()[0]));
  ASSERT_THAT(events, SizeIs(1 + kinds.size()));
  size_t i = 1;
  for (const auto& [colours, colorspace] : kinds) {
    EXPECT_EQ(events[i].step, colours);
    EXPECT_EQ(events[i].wall_time, 7);
    EXPECT_TRUE(events[i].scalars.empty());
    ASSERT_THAT(events[i].images, SizeIs(1));
    const auto& [tag, image] = *events[i].images.begin();
    EXPECT_EQ(tag, "sam\xEF\xBF\xBDples");
    EXPECT_EQ(image.width, 3u);
    EXPECT_EQ(image.height, 2u);
    EXPECT_EQ(image.colorspace, colorspace);
    EXPECT_EQ(image.encoded, PngHeader(colours));
    ++i;
  }
}

TEST(EventFileTest, ImagesDoNotWaitForAFullDisk) {
  TempFolder folder;
  auto file = EventFile::Create(folder.path(), absl::UnixEpoch());
  ASSERT_THAT(file, IsOk());
  {
    FullDisk full(ReadFile(folder / folder.List()[0])->size() + 6);
    for (int step = 0; step < 3; ++step) {
      EXPECT_THAT(file->AddImage(step, absl::UnixEpoch(), "samples",
                                 PngHeader(2), 3, 2),
                  StatusIs(absl::StatusCode::kResourceExhausted));
    }
  }
  ASSERT_THAT(file->Flush(), IsOk());
  // The one that was begun is whole.
  const std::vector<ReadEvent> events =
      ReadEvents(*ReadFile(folder / folder.List()[0]));
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[1].step, 0);
  EXPECT_THAT(events[1].images, SizeIs(1));
}

// step is field 2, session_log field 7 of 2 bytes: its status, field 1, is 1.
TEST(EventFileTest, AStartSaysFromWhichStepOnItBeginsAnew) {
  TempFolder folder;
  auto file = EventFile::Create(folder.path(), absl::UnixEpoch());
  ASSERT_THAT(file, IsOk());
  const size_t before = ReadFile(folder / folder.List()[0])->size();
  ASSERT_THAT(file->AddStart(5, absl::UnixEpoch()), IsOk());
  const std::string record =
      ReadFile(folder / folder.List()[0])->substr(before);
  EXPECT_EQ(record.substr(12, record.size() - 16), "\x10\x05\x3a\x02\x08\x01");
  ASSERT_THAT(file->AddScalars(4, absl::UnixEpoch(), {{"loss/mean", 1}}),
              IsOk());
  const std::vector<ReadEvent> events =
      ReadEvents(*ReadFile(folder / folder.List()[0]));
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[1].session_status, 1);
  EXPECT_EQ(events[1].step, 5);
  EXPECT_EQ(events[2].session_status, 0);
}

// The bytes of a record, worked out by hand from the formats' descriptions.
TEST(EventFileTest, RecordsHaveLengthAndChecksums) {
  TempFolder folder;
  ASSERT_THAT(EventFile::Create(folder.path(), absl::UnixEpoch()), IsOk());
  const std::string bytes = *ReadFile(folder / folder.List()[0]);
  // wall_time is 0 and left out; field 3, of 13 bytes.
  const std::string data =
      "\x1a\x0d"
      "brain.Event:2";
  ASSERT_EQ(bytes.size(), 8 + 4 + data.size() + 4);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x0f\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(bytes.substr(12, data.size()), data);
  EXPECT_THAT(ReadEvents(bytes), SizeIs(1));
  for (const size_t at : {0u, 9u, 13u, 28u}) {
    std::string broken = bytes;
    broken[at] ^= 1;
    EXPECT_THROW(ReadEvents(broken), std::runtime_error) << at;
  }
  EXPECT_THAT(ReadEvents(bytes.substr(0, bytes.size() - 1)), SizeIs(0));
}

}  // namespace
}  // namespace miniray::train
