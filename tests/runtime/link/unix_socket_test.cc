#include "runtime/link/unix_socket.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace internal {
namespace {

// Nobody else's.
std::string Address(const std::string& name) {
  return absl::StrCat(name, "-", getpid(), ":1");
}

TEST(UnixSocketTest, WhoKnowsTheAddressFindsTheSocket) {
  const std::string address = Address("found");
  EXPECT_FALSE(DialUnix(address).valid());
  {
    const auto listener = ListenUnix(address);
    ASSERT_THAT(listener, IsOk());
    const ScopedFd dialled = DialUnix(address);
    ASSERT_TRUE(dialled.valid());
    const ScopedFd accepted(accept(listener->get(), nullptr, nullptr));
    ASSERT_TRUE(accepted.valid());
    EXPECT_TRUE(TrustsPeer(accepted.get()));
    EXPECT_FALSE(DialUnix(address + "1").valid());
  }
  EXPECT_FALSE(DialUnix(address).valid());
}

TEST(UnixSocketTest, ANameIsTakenOnce) {
  const std::string address = Address("once");
  const auto listener = ListenUnix(address);
  ASSERT_THAT(listener, IsOk());
  EXPECT_EQ(ListenUnix(address).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(ListenUnix(std::string(200, 'a')).ok());
}

TEST(UnixSocketTest, ANameThatAnotherUserTookIsNotUsed) {
  EXPECT_TRUE(TrustsUser(/*peer=*/1000, /*own=*/1000));
  EXPECT_TRUE(TrustsUser(/*peer=*/0, /*own=*/1000));
  EXPECT_FALSE(TrustsUser(/*peer=*/1001, /*own=*/1000));
  EXPECT_FALSE(TrustsUser(/*peer=*/1000, /*own=*/0));
  // Any user of another user namespace.
  EXPECT_FALSE(TrustsUser(/*peer=*/65534, /*own=*/65534));
}

// The same with a real process, where this one may become another user.
TEST(UnixSocketTest, ASquatterIsNotDialled) {
  const std::string address = Address("squatted");
  int ready[2], done[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t squatter = fork();
  ASSERT_GE(squatter, 0);
  if (squatter == 0) {
    char say = 'n';
    auto listener = absl::StatusOr<ScopedFd>(absl::UnknownError(""));
    if (setuid(12345) == 0) {
      listener = ListenUnix(address);
      if (listener.ok()) say = 'y';
    }
    if (write(ready[1], &say, 1) != 1) _exit(1);
    close(done[1]);
    char end = 0;
    _exit(read(done[0], &end, 1) == 0 ? 0 : 1);
  }
  char said = 0;
  ASSERT_EQ(read(ready[0], &said, 1), 1);
  const bool dialled = DialUnix(address).valid();
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) close(fd);
  ASSERT_EQ(waitpid(squatter, nullptr, 0), squatter);
  if (said != 'y') GTEST_SKIP() << "needs root: nobody else can be played";
  EXPECT_FALSE(dialled);
}

}  // namespace
}  // namespace internal
}  // namespace miniray
