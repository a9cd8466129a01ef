#include "runtime/worker/output_capture.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray {
namespace {

class OutputCaptureTest : public testing::Test {
 protected:
  OutputCaptureTest() {
    auto capture =
        OutputCapture::Create({.file = {.max_bytes = 1 << 20, .max_files = 2},
                               .sink =
                                   [this](v1::ProcessOutput output, bool must) {
                                     absl::MutexLock lock(&mu_);
                                     if (full_ && !must) return false;
                                     sent_.push_back(std::move(output));
                                     return true;
                                   },
                               .drain_timeout = absl::Milliseconds(200)});
    EXPECT_TRUE(capture.ok()) << capture.status();
    capture_ = *std::move(capture);
  }

  std::shared_ptr<OutputCapture::Stream> Open() { return Open(path_); }
  std::shared_ptr<OutputCapture::Stream> Open(const std::string& path) {
    v1::ProcessOutput origin;
    origin.set_job_id("job-1");
    origin.set_actor_id("actor-1");
    auto stream = capture_->Open(path, origin);
    EXPECT_TRUE(stream.ok()) << stream.status();
    (*stream)->set_pid(77);
    return *std::move(stream);
  }

  // A process's end of the pipe.
  static ScopedFd Writer(const OutputCapture::Stream& stream) {
    return ScopedFd(dup(stream.write_fd()));
  }

  static void Write(const ScopedFd& fd, const std::string& text) {
    size_t done = 0;
    while (done < text.size()) {
      const ssize_t n = write(fd.get(), text.data() + done, text.size() - done);
      ASSERT_GT(n, 0);
      done += static_cast<size_t>(n);
    }
  }

  static void Finish(OutputCapture::Stream* stream) {
    absl::Notification done;
    stream->Finish([&done] { done.Notify(); });
    ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
  }

  // Waits until what was sent ends like this.
  bool Sent(const std::string& end) {
    absl::MutexLock lock(&mu_);
    auto there = [&] {
      mu_.AssertHeld();
      return !sent_.empty() && absl::EndsWith(sent_.back().text(), end);
    };
    return mu_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(20));
  }

  std::string SentText() {
    absl::MutexLock lock(&mu_);
    std::string text;
    for (const v1::ProcessOutput& output : sent_) text += output.text();
    return text;
  }

  TempFolder folder_;
  const std::string path_ = folder_.path() + "/a.log";
  absl::Mutex mu_;
  bool full_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<v1::ProcessOutput> sent_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<OutputCapture> capture_;
};

TEST_F(OutputCaptureTest, NothingIsLostBetweenTheLastWordAndTheEnd) {
  auto stream = Open();
  ScopedFd writer = Writer(*stream);
  stream->ReleaseWriteEnd();
  // More than a pipe holds, without a newline at its end.
  std::string text;
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&text, "line ", i, "\n");
  text += "the end";
  Write(writer, text);
  writer.reset();
  Finish(stream.get());
  EXPECT_EQ(*ReadFile(path_), text);
  EXPECT_EQ(SentText(), text);
  absl::MutexLock lock(&mu_);
  EXPECT_EQ(sent_[0].job_id(), "job-1");
  EXPECT_EQ(sent_[0].actor_id(), "actor-1");
  EXPECT_EQ(sent_[0].pid(), 77);
  // All but the last are whole lines.
  for (size_t i = 0; i + 1 < sent_.size(); ++i) {
    EXPECT_EQ(sent_[i].text().back(), '\n');
  }
}

TEST_F(OutputCaptureTest, AFullSinkLosesLinesThatAreCounted) {
  auto stream = Open();
  ScopedFd writer = Writer(*stream);
  stream->ReleaseWriteEnd();
  {
    absl::MutexLock lock(&mu_);
    full_ = true;
  }
  Write(writer, "one\ntwo\nthree\n");
  writer.reset();
  Finish(stream.get());
  EXPECT_EQ(*ReadFile(path_), "one\ntwo\nthree\n");
  EXPECT_EQ(SentText(), "");
  absl::MutexLock lock(&mu_);
  ASSERT_EQ(sent_.size(), 1);
  EXPECT_EQ(sent_[0].dropped_lines(), 3);
}

TEST_F(OutputCaptureTest, WhatAFullDiskTakesFromTheLogIsSaid) {
  auto stream = Open("/dev/full");
  ScopedFd writer = Writer(*stream);
  stream->ReleaseWriteEnd();
  Write(writer, "one\n");
  ASSERT_TRUE(Sent("one\n"));
  Write(writer, "two\nend");
  writer.reset();
  Finish(stream.get());
  EXPECT_EQ(SentText(),
            "[miniray: in its log: output lost: No space left on device in "
            "/dev, 4 bytes]\n"
            "one\ntwo\n"
            "[miniray: in its log: output lost: No space left on device in "
            "/dev, 11 bytes]\n"
            "end");
}

TEST_F(OutputCaptureTest, APipeThatSomebodyElseHoldsIsReadForAWhile) {
  auto stream = Open();
  const ScopedFd grandchild = Writer(*stream);
  stream->ReleaseWriteEnd();
  Write(grandchild, "said\n");
  const absl::Time start = absl::Now();
  Finish(stream.get());
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(150));
  EXPECT_EQ(*ReadFile(path_), "said\n");
}

// On a slow node the capture's thread may come too late to a pipe that
// something else still holds open.
TEST(OutputCaptureDeadlineTest, WhatIsInThePipeByThenIsNotLost) {
  TempFolder folder;
  absl::Notification busy, go_on;
  std::string sent;
  auto capture =
      OutputCapture::Create({.sink =
                                 [&](v1::ProcessOutput output, bool /*must*/) {
                                   if (output.actor_id() == "busy") {
                                     busy.Notify();
                                     go_on.WaitForNotification();
                                   } else {
                                     sent += output.text();
                                   }
                                   return true;
                                 },
                             .drain_timeout = absl::ZeroDuration()});
  ASSERT_TRUE(capture.ok()) << capture.status();
  v1::ProcessOutput origin;
  origin.set_job_id("job");
  origin.set_actor_id("busy");
  auto other = (*capture)->Open(folder / "other.log", origin);
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_EQ(write((*other)->write_fd(), "x\n", 2), 2);
  busy.WaitForNotification();

  origin.set_actor_id("late");
  auto stream = (*capture)->Open(folder / "late.log", origin);
  ASSERT_TRUE(stream.ok()) << stream.status();
  const ScopedFd grandchild(dup((*stream)->write_fd()));
  (*stream)->ReleaseWriteEnd();
  std::string text;
  for (int i = 0; i < 4000; ++i) absl::StrAppend(&text, "line ", i, "\n");
  ASSERT_EQ(write(grandchild.get(), text.data(), text.size()),
            static_cast<ssize_t>(text.size()));
  absl::Notification done;
  (*stream)->Finish([&done] { done.Notify(); });
  go_on.Notify();
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_EQ(*ReadFile(folder / "late.log"), text);
  EXPECT_EQ(sent, text);
}

TEST_F(OutputCaptureTest, WithoutAJobNothingIsSent) {
  auto stream = capture_->Open(path_, {});
  ASSERT_TRUE(stream.ok());
  ScopedFd writer = Writer(**stream);
  Write(writer, "hello\n");
  writer.reset();
  Finish(stream->get());
  EXPECT_EQ(*ReadFile(path_), "hello\n");
  absl::MutexLock lock(&mu_);
  EXPECT_TRUE(sent_.empty());
}

TEST_F(OutputCaptureTest, AVeryLongLineComesInPieces) {
  auto stream = Open();
  ScopedFd writer = Writer(*stream);
  stream->ReleaseWriteEnd();
  const std::string text(1 << 20, 'x');
  Write(writer, text);
  writer.reset();
  Finish(stream.get());
  EXPECT_EQ(SentText(), text);
}

TEST_F(OutputCaptureTest, ManyProcessesAtOnce) {
  std::vector<std::shared_ptr<OutputCapture::Stream>> streams;
  std::vector<ScopedFd> writers;
  for (int i = 0; i < 50; ++i) {
    auto stream = capture_->Open(absl::StrCat(path_, i), {});
    ASSERT_TRUE(stream.ok());
    writers.push_back(Writer(**stream));
    (*stream)->ReleaseWriteEnd();
    streams.push_back(*std::move(stream));
  }
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < writers.size(); ++i) {
      Write(writers[i], absl::StrCat(round, "\n"));
    }
  }
  writers.clear();
  for (size_t i = 0; i < streams.size(); ++i) {
    Finish(streams[i].get());
    const std::string text = *ReadFile(absl::StrCat(path_, i));
    EXPECT_EQ(text.substr(text.size() - 6), "18\n19\n") << i;
  }
}

}  // namespace
}  // namespace miniray
