#include "runtime/link/frame_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/link/link_call.h"
#include "runtime/link/tcp_socket.h"
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

// Two ends of a unix socket, the default, or of a TCP connection.
void Pair(bool tcp, ScopedFd* caller, ScopedFd* server) {
  if (!tcp) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    *caller = ScopedFd(ends[0]);
    *server = ScopedFd(ends[1]);
    return;
  }
  const auto listener = ListenTcp("127.0.0.1");
  ASSERT_THAT(listener, IsOk());
  *caller = DialTcp(absl::StrCat("127.0.0.1:", listener->port));
  ASSERT_TRUE(caller->valid());
  pollfd incoming = {listener->fd.get(), POLLIN, 0};
  ASSERT_EQ(poll(&incoming, 1, 30000), 1);
  *server =
      ScopedFd(accept4(listener->fd.get(), nullptr, nullptr, SOCK_NONBLOCK));
  ASSERT_TRUE(server->valid());
  PrepareAccepted(server->get());
}

class FrameLinkTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ScopedFd caller, server;
    Pair(GetParam(), &caller, &server);
    caller_ = std::make_shared<FrameLink>(std::move(caller),
                                          FrameLink::Side::kCaller, kMaxBytes);
    server_ = std::make_shared<FrameLink>(std::move(server),
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

INSTANTIATE_TEST_SUITE_P(Sockets, FrameLinkTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) {
                           return info.param ? "Tcp" : "Unix";
                         });

TEST_P(FrameLinkTest, FramesOfAllSizesArriveInOrder) {
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

TEST_P(FrameLinkTest, ASmallFrameLeavesInTheCallersThread) {
  EXPECT_TRUE(caller_->Write(kLinkFrame, absl::Cord("now"), true));
  EXPECT_FALSE(caller_->Write(kLinkFrame, absl::Cord("later"), false));
  EXPECT_TRUE(at_caller_->AwaitWritten(1));
}

TEST_P(FrameLinkTest, WhoTakesNothingIsSentNothingMore) {
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

TEST_P(FrameLinkTest, AFinishedLinkDeliversWhatWasWritten) {
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

TEST_P(FrameLinkTest, WhatTheCallerStillSendsTakesNothingAway) {
  // Nobody at the server takes these.
  for (int i = 0; i < 10; ++i) {
    caller_->Write(kLinkFrame, absl::Cord(Bytes(10000)), true);
  }
  // More than the sockets hold: it leaves while the caller reads.
  const std::string reply = Bytes(24 << 20);
  server_->Write(kLinkFrame, absl::Cord(reply), false);
  server_->Write(kLinkEnd, absl::Cord("bye"), false);
  server_->Finish();
  at_caller_->Take(caller_.get(), 1);
  ASSERT_TRUE(at_caller_->AwaitFrames(1));
  EXPECT_TRUE(at_caller_->frames()[0].second == reply);
  caller_->Write(kLinkFrame, absl::Cord("one more"), true);
  at_caller_->Take(caller_.get(), 1000);
  ASSERT_TRUE(at_caller_->AwaitFrames(2));
  EXPECT_EQ(at_caller_->frames()[1],
            std::make_pair(kLinkEnd, std::string("bye")));
  EXPECT_EQ(at_caller_->AwaitEnd().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(at_server_->AwaitEnd(), IsOk());
}

TEST_P(FrameLinkTest, ACallerTakesWhatCameBeforeTheEndHoweverLate) {
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

TEST_P(FrameLinkTest, TheReasonOfAnEndIsWhatItsUserSays) {
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

TEST_P(FrameLinkTest, ACancelledLinkEndsAtBothEnds) {
  at_server_->Take(server_.get(), 1000);
  caller_->Cancel(absl::AbortedError("enough"));
  EXPECT_EQ(at_caller_->AwaitEnd().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(at_server_->AwaitEnd().code(), absl::StatusCode::kUnavailable);
}

TEST_P(FrameLinkTest, TheEndIsSeenWhereNothingIsTaken) {
  caller_->Write(kLinkFrame, absl::Cord("nobody wants it"), true);
  caller_->Cancel(absl::AbortedError("enough"));
  EXPECT_EQ(at_server_->AwaitEnd().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(at_server_->frames().size(), 0);
}

TEST_P(FrameLinkTest, ATooLargeFrameEndsTheLink) {
  server_->set_max_bytes(1000);
  at_server_->Take(server_.get(), 1000);
  caller_->Write(kLinkFrame, absl::Cord(Bytes(1000)), true);
  ASSERT_TRUE(at_server_->AwaitFrames(1));
  caller_->Write(kLinkFrame, absl::Cord(Bytes(1001)), true);
  EXPECT_EQ(at_server_->AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(at_server_->frames().size(), 1);
}

// Whatever order the machine has.
TEST(FrameLinkWireTest, TheBytesAreFixed) {
  ScopedFd near, far;
  Pair(false, &near, &far);
  const auto user = std::make_shared<Taker>();
  const auto link = std::make_shared<FrameLink>(
      std::move(near), FrameLink::Side::kCaller, kMaxBytes, "before");
  ASSERT_TRUE(link->Start(user));
  link->Write(17, absl::Cord(std::string(0x102, 'x')), true);
  const std::string expected =
      absl::StrCat("before", std::string("\x02\x01\0\0\x11\0\0\0", 8),
                   std::string(0x102, 'x'));
  std::string got(expected.size(), '\0');
  ASSERT_EQ(recv(far.get(), got.data(), got.size(), 0), got.size());
  EXPECT_EQ(got, expected);
  // And back, a byte at a time.
  user->Take(link.get(), 1);
  for (const char c : std::string("\x03\0\0\0\x12\0\0\0abc", 11)) {
    ASSERT_EQ(send(far.get(), &c, 1, 0), 1);
  }
  ASSERT_TRUE(user->AwaitFrames(1));
  EXPECT_EQ(user->frames()[0],
            std::make_pair(uint32_t{18}, std::string("abc")));
  user->Take(link.get(), 1);
  far.reset();
  EXPECT_EQ(user->AwaitEnd().code(), absl::StatusCode::kUnavailable);
}

TEST(FrameLinkWireTest, WhatIsNoFrameEndsTheLink) {
  // What a server of gRPC says first; a word with content where none is; kinds
  // that there are not.
  for (const std::string& said :
       {std::string("\0\0\x24\x04\0\0\0\0", 8),
        std::string("\1\0\0\0\0\0\0\0", 8),
        std::string("\0\0\0\0\x0f\0\0\0", 8), std::string("MiniRay1")}) {
    ScopedFd near, far;
    Pair(false, &near, &far);
    const auto user = std::make_shared<Taker>();
    const auto link = std::make_shared<FrameLink>(
        std::move(near), FrameLink::Side::kCaller, uint64_t{1} << 31);
    ASSERT_TRUE(link->Start(user));
    user->Take(link.get(), 1);
    ASSERT_EQ(send(far.get(), said.data(), said.size(), 0), said.size());
    EXPECT_EQ(user->AwaitEnd().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(user->frames(), testing::IsEmpty());
  }
}

TEST(FrameLinkWireTest, WhereNobodyListensItEnds) {
  std::string nobody;
  {
    const auto listener = ListenTcp("127.0.0.1");
    ASSERT_THAT(listener, IsOk());
    nobody = absl::StrCat("127.0.0.1:", listener->port);
  }
  ScopedFd fd = DialTcp(nobody);
  if (!fd.valid()) return;  // The kernel said so at once.
  const auto user = std::make_shared<Taker>();
  const auto link = std::make_shared<FrameLink>(
      std::move(fd), FrameLink::Side::kCaller, kMaxBytes);
  ASSERT_TRUE(link->Start(user));
  link->Write(kLinkFrame, absl::Cord("hello?"), true);
  user->Take(link.get(), 1);
  EXPECT_EQ(user->AwaitEnd().code(), absl::StatusCode::kUnavailable);
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
