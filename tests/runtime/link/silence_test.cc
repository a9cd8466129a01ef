// Links whose other end is silent, in a process that takes 2 s of it.

#include "runtime/base/silence.h"

#include <sys/socket.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/link/frame_link.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace internal {
namespace {

using ::testing::HasSubstr;

class User : public FrameLinkUser {
 public:
  void OnLinkFrame(uint32_t, const absl::Cord&) override {}
  void OnLinkWritten() override {}
  void OnLinkEnded(const absl::Status& status) override {
    why = status;
    ended.Notify();
  }

  absl::Status why;
  absl::Notification ended;
};

std::shared_ptr<FrameLink> Open(ScopedFd fd, FrameLink::Side side,
                                const std::shared_ptr<User>& user) {
  auto link = std::make_shared<FrameLink>(std::move(fd), side, 1 << 20);
  EXPECT_TRUE(link->Start(user));
  link->Read();
  return link;
}

TEST(LinkSilenceTest, IsTakenForAsLongAsTheVariableSays) {
  setenv(kSilenceTimeoutVariable, "2s", /*replace=*/1);
  int living[2], dead[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, living), 0);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, dead), 0);
  const auto server = std::make_shared<User>();
  const auto caller = std::make_shared<User>();
  const auto disappointed = std::make_shared<User>();
  const auto server_link =
      Open(ScopedFd(living[1]), FrameLink::Side::kServer, server);
  const auto caller_link =
      Open(ScopedFd(living[0]), FrameLink::Side::kCaller, caller);
  const ScopedFd says_nothing(dead[1]);
  const auto link =
      Open(ScopedFd(dead[0]), FrameLink::Side::kCaller, disappointed);
  ASSERT_TRUE(
      disappointed->ended.WaitForNotificationWithTimeout(absl::Seconds(12)));
  EXPECT_THAT(disappointed->why, StatusIs(absl::StatusCode::kUnavailable,
                                          HasSubstr("no sign of life for 2s")));
  // Nothing but that it lives is said here, and that is enough. Not a
  // condition: it would have ended by then.
  EXPECT_FALSE(caller->ended.WaitForNotificationWithTimeout(absl::Seconds(1)));
  caller_link->Cancel(absl::CancelledError("the test ends"));
  EXPECT_TRUE(caller->ended.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_TRUE(server->ended.WaitForNotificationWithTimeout(absl::Seconds(30)));
}

}  // namespace
}  // namespace internal
}  // namespace miniray
