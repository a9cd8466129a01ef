#include "runtime/objects/memory_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

TEST(MemoryFileTest, APageThatSomebodyHasInHandHoldsUpTheSealAndNoMore) {
  const std::string bytes(4096, 'x');
  auto file = MemoryFile::Create(4096);
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT((*file)->Append(bytes), IsOk());
  const int fd = (*file)->shared().fd();

  // A page in a pipe is in somebody's hand.
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const ScopedFd out(ends[0]), in(ends[1]);
  loff_t offset = 0;
  ASSERT_EQ(splice(fd, &offset, in.get(), nullptr, 4096, 0), 4096);
  // The kernel waits for it as long as it ever does.
  ASSERT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
  ASSERT_EQ(errno, EBUSY);

  absl::Status sealed;
  std::thread sealer([&] { sealed = (*file)->Seal(); });
  // As long again, so that one try of the other thread is over.
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
  std::string read_back(4096, ' ');
  EXPECT_EQ(read(out.get(), read_back.data(), 4096), 4096);
  sealer.join();
  EXPECT_THAT(sealed, IsOk());
  EXPECT_EQ(read_back, bytes);
  EXPECT_NE(fcntl(fd, F_GET_SEALS) & F_SEAL_WRITE, 0);
}

TEST(MemoryFileTest, AFileThatLacksBytesIsNotSealed) {
  auto file = MemoryFile::Create(4096);
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT((*file)->Append("short"), IsOk());
  EXPECT_THAT((*file)->Seal(), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace miniray
