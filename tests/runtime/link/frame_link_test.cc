#include "runtime/link/frame_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/link/link_call.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace internal {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kLong = absl::Seconds(30);
constexpr uint64_t kMaxBytes = 64 << 20;

// Bytes that differ from place to place.
std::string Bytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<char>(i * 31 + i / 977);
  }
  return bytes;
}

// Takes frames while it has room for them.
class Taker : public FrameLinkUser {
 public:
  void OnLinkFrame(uint32_t kind, const absl::Cord& bytes) override {
    FrameLink* read = nullptr;
    {
      absl::MutexLock lock(&mu_);
      frames_.emplace_back(kind, std::string(bytes));
      if (--room_ > 0) read = link_;
    }
    if (read != nullptr) read->Read();
  }
  void OnLinkWritten() override {
    absl::MutexLock lock(&mu_);
    ++written_;
  }
  void OnLinkEnded(const absl::Status& status) override {
    absl::MutexLock lock(&mu_);
    ended_ = status;
    ++ends_;
  }

  void Take(FrameLink* link, int frames) {
    {
      absl::MutexLock lock(&mu_);
      link_ = link;
      room_ = frames;
    }
    link->Read();
  }
  bool AwaitFrames(size_t count) {
    absl::MutexLock lock(&mu_);
    auto there = [&] {
      mu_.AssertHeld();
      return frames_.size() >= count;
    };
    return mu_.AwaitWithTimeout(absl::Condition(&there), kLong);
  }
  bool AwaitWritten(int count) {
    absl::MutexLock lock(&mu_);
    auto there = [&] {
      mu_.AssertHeld();
      return written_ >= count;
    };
    return mu_.AwaitWithTimeout(absl::Condition(&there), kLong);
  }
  absl::Status AwaitEnd() {
    absl::MutexLock lock(&mu_);
    auto there = [&] {
      mu_.AssertHeld();
      return ends_ > 0;
    };
    if (!mu_.AwaitWithTimeout(absl::Condition(&there), kLong)) {
      return absl::DeadlineExceededError("it does not end");
    }
    return ended_;
  }
  std::vector<std::pair<uint32_t, std::string>> frames() {
    absl::MutexLock lock(&mu_);
    return frames_;
  }

 private:
  absl::Mutex mu_;
  FrameLink* link_ ABSL_GUARDED_BY(mu_) = nullptr;
  int room_ ABSL_GUARDED_BY(mu_) = 0;
  int written_ ABSL_GUARDED_BY(mu_) = 0;
  int ends_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status ended_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<uint32_t, std::string>> frames_ ABSL_GUARDED_BY(mu_);
};

class FrameLinkTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    caller_ = std::make_shared<FrameLink>(ScopedFd(ends[0]),
                                          FrameLink::Side::kCaller, kMaxBytes);
    server_ = std::make_shared<FrameLink>(ScopedFd(ends[1]),
                                          FrameLink::Side::kServer, kMaxBytes);
    ASSERT_TRUE(caller_->Start(at_caller_));
    ASSERT_TRUE(server_->Start(at_server_));
  }
  void TearDown() override {
    caller_->Cancel(absl::CancelledError("the test ends"));
    server_->Cancel(absl::CancelledError("the test ends"));
    EXPECT_FALSE(at_caller_->AwaitEnd().ok() && at_server_->AwaitEnd().ok());
  }

  const std::shared_ptr<Taker> at_caller_ = std::make_shared<Taker>();
  const std::shared_ptr<Taker> at_server_ = std::make_shared<Taker>();
  std::shared_ptr<FrameLink> caller_;
  std::shared_ptr<FrameLink> server_;
};

TEST_F(FrameLinkTest, FramesOfAllSizesArriveInOrder) {
  const std::vector<size_t> sizes = {0,     1,     100,     65527,   65528,
                                     65529, 70000, 1 << 20, 5 << 20, 3};
  at_server_->Take(server_.get(), 1000);
  at_caller_->Take(caller_.get(), 1000);
  int later = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const absl::Cord frame(Bytes(sizes[i]));
    const auto kind = static_cast<uint32_t>(FrameLink::kFirstKind + i);
    if (!caller_->Write(kind, frame, /*at_once=*/i % 2 == 0)) ++later;
    server_->Write(kind, frame, /*at_once=*/i % 2 == 1);
  }
  EXPECT_GT(later, 0);
  ASSERT_TRUE(at_server_->AwaitFrames(sizes.size()));
  ASSERT_TRUE(at_caller_->AwaitFrames(sizes.size()));
  EXPECT_TRUE(at_caller_->AwaitWritten(1));
  for (const auto& frames : {at_server_->frames(), at_caller_->frames()}) {
    ASSERT_EQ(frames.size(), sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(frames[i].first, FrameLink::kFirstKind + i);
      EXPECT_TRUE(frames[i].second == Bytes(sizes[i])) << sizes[i];
    }
  }
}

TEST_F(FrameLinkTest, ASmallFrameLeavesInTheCallersThread) {
  EXPECT_TRUE(caller_->Write(kLinkFrame, absl::Cord("now"), true));
  EXPECT_FALSE(caller_->Write(kLinkFrame, absl::Cord("later"), false));
  EXPECT_TRUE(at_caller_->AwaitWritten(1));
}

TEST_F(FrameLinkTest, WhoTakesNothingIsSentNothingMore) {
  at_server_->Take(server_.get(), 1);
  // More than a socket holds.
  const absl::Cord frame(Bytes(8 << 20));
  EXPECT_FALSE(caller_->Write(kLinkFrame, absl::Cord("first"), false));
  EXPECT_FALSE(caller_->Write(kLinkFrame, frame, false));
  ASSERT_TRUE(at_server_->AwaitFrames(1));
  EXPECT_EQ(at_server_->frames().size(), 1);
  at_server_->Take(server_.get(), 1);
  ASSERT_TRUE(at_server_->AwaitFrames(2));
  EXPECT_EQ(at_server_->frames()[1].second.size(), frame.size());
  EXPECT_TRUE(at_caller_->AwaitWritten(1));
}

TEST_F(FrameLinkTest, AFinishedLinkDeliversWhatWasWritten) {
  at_caller_->Take(caller_.get(), 1000);
  server_->Write(kLinkFrame, absl::Cord(Bytes(3 << 20)), false);
  server_->Write(kLinkEnd, absl::Cord("bye"), false);
  server_->Finish();
  ASSERT_TRUE(at_caller_->AwaitFrames(2));
  EXPECT_EQ(at_caller_->frames()[1],
            std::make_pair(kLinkEnd, std::string("bye")));
  EXPECT_EQ(at_caller_->AwaitEnd().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(at_server_->AwaitEnd(), IsOk());
}

TEST_F(FrameLinkTest, ACallerTakesWhatCameBeforeTheEndHoweverLate) {
  server_->Write(kLinkFrame, absl::Cord("reply"), true);
  server_->Write(kLinkEnd, absl::Cord("bye"), true);
  server_->Finish();
  EXPECT_THAT(at_server_->AwaitEnd(), IsOk());
  at_caller_->Take(caller_.get(), 1);
  ASSERT_TRUE(at_caller_->AwaitFrames(1));
  at_caller_->Take(caller_.get(), 1000);
  ASSERT_TRUE(at_caller_->AwaitFrames(2));
  EXPECT_EQ(at_caller_->frames()[1],
            std::make_pair(kLinkEnd, std::string("bye")));
  EXPECT_EQ(at_caller_->AwaitEnd().code(), absl::StatusCode::kUnavailable);
}

// Ends its link for the reason that the first frame tells.
class Refused : public Taker {
 public:
  explicit Refused(std::shared_ptr<FrameLink> link) : link_(std::move(link)) {}
  void OnLinkFrame(uint32_t, const absl::Cord& bytes) override {
    link_->Cancel(absl::PermissionDeniedError(std::string(bytes)));
  }

 private:
  const std::shared_ptr<FrameLink> link_;
};

TEST_F(FrameLinkTest, TheReasonOfAnEndIsWhatItsUserSays) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const auto caller = std::make_shared<FrameLink>(
      ScopedFd(ends[0]), FrameLink::Side::kCaller, kMaxBytes);
  const auto server = std::make_shared<FrameLink>(
      ScopedFd(ends[1]), FrameLink::Side::kServer, kMaxBytes);
  const auto at_caller = std::make_shared<Refused>(caller);
  const auto at_server = std::make_shared<Taker>();
  ASSERT_TRUE(caller->Start(at_caller));
  ASSERT_TRUE(server->Start(at_server));
  server->Write(kLinkEnd, absl::Cord("no token"), true);
  server->Finish();
  EXPECT_THAT(at_server->AwaitEnd(), IsOk());
  caller->Read();
  EXPECT_THAT(at_caller->AwaitEnd(),
              StatusIs(absl::StatusCode::kPermissionDenied, "no token"));
}

TEST_F(FrameLinkTest, ACancelledLinkEndsAtBothEnds) {
  at_server_->Take(server_.get(), 1000);
  caller_->Cancel(absl::AbortedError("enough"));
  EXPECT_EQ(at_caller_->AwaitEnd().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(at_server_->AwaitEnd().code(), absl::StatusCode::kUnavailable);
}

TEST_F(FrameLinkTest, TheEndIsSeenWhereNothingIsTaken) {
  caller_->Write(kLinkFrame, absl::Cord("nobody wants it"), true);
  caller_->Cancel(absl::AbortedError("enough"));
  EXPECT_EQ(at_server_->AwaitEnd().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(at_server_->frames().size(), 0);
}

TEST_F(FrameLinkTest, ATooLargeFrameEndsTheLink) {
  server_->set_max_bytes(1000);
  at_server_->Take(server_.get(), 1000);
  caller_->Write(kLinkFrame, absl::Cord(Bytes(1000)), true);
  ASSERT_TRUE(at_server_->AwaitFrames(1));
  caller_->Write(kLinkFrame, absl::Cord(Bytes(1001)), true);
  EXPECT_EQ(at_server_->AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(at_server_->frames().size(), 1);
}

TEST(LinkCallTest, AHelloComesBack) {
  const LinkHello hello = {{"a", "1"}, {"empty", ""}, {"b", "two words"}};
  const auto decoded = DecodeLinkHello(EncodeLinkHello(hello));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(*decoded, hello);
  EXPECT_THAT(*DecodeLinkHello(absl::Cord()), testing::IsEmpty());
  EXPECT_FALSE(DecodeLinkHello(absl::Cord("a")).ok());
  EXPECT_FALSE(DecodeLinkHello(absl::Cord(std::string("a\0b", 3))).ok());
}

}  // namespace
}  // namespace internal
}  // namespace miniray
