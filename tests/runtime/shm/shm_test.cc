// Shared memory between two processes: what is lent, what is read, and what
// neither can do to the other.

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/copy.h"
#include "runtime/shm/borrowed_memory.h"
#include "runtime/shm/segment.h"
#include "runtime/shm/shared_bytes.h"
#include "runtime/shm/shared_memory.h"
#include "runtime/shm/warm_memory.h"
#include "runtime/wire/wire.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMegabyte = 1 << 20;

// Runs `body` in a child; what it returns is the child's exit code.
class Child {
 public:
  explicit Child(const std::function<int()>& body) {
    pid_ = fork();
    if (pid_ == 0) _exit(body());
  }
  ~Child() {
    if (pid_ > 0) Wait();
  }
  pid_t pid() const { return pid_; }
  void Kill() { kill(pid_, SIGKILL); }
  int Wait() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
};

// One way, one byte at a time: who waits for what.
class Signal {
 public:
  Signal() { EXPECT_EQ(pipe2(fds_, O_CLOEXEC), 0); }
  ~Signal() {
    close(fds_[0]);
    close(fds_[1]);
  }
  void Give() { EXPECT_EQ(write(fds_[1], "x", 1), 1); }
  void Await() {
    char byte;
    EXPECT_EQ(read(fds_[0], &byte, 1), 1);
  }

 private:
  int fds_[2];
};

absl::Cord Large(char fill, size_t size = kMegabyte) {
  return absl::Cord(std::string(size, fill));
}

TEST(SharedMemoryTest, AnotherProcessReadsWhatIsLent) {
  absl::Cord bytes("head ");
  bytes.Append(Large('a'));
  bytes.Append("middle");
  bytes.Append(Large('b'));
  const absl::Cord moved = MoveToSharedMemory(bytes);
  EXPECT_EQ(moved, bytes);
  const absl::Cord encoded = EncodeSharedBytes(moved);
  ASSERT_FALSE(encoded.empty());
  EXPECT_LT(encoded.size(), 1000u);
  // Moved already: nothing is copied again.
  EXPECT_EQ(EncodeSharedBytes(MoveToSharedMemory(moved)), encoded);
  Child child([&] {
    const absl::StatusOr<absl::Cord> read = DecodeSharedBytes(encoded);
    return read.ok() && *read == bytes ? 0 : 1;
  });
  EXPECT_EQ(child.Wait(), 0);
}

TEST(SharedMemoryTest, SmallMessagesStayAsTheyAre) {
  EXPECT_TRUE(
      EncodeSharedBytes(MoveToSharedMemory(absl::Cord("small"))).empty());
  EXPECT_TRUE(EncodeSharedBytes(Large('x')).empty());  // Not moved.
}

TEST(SharedMemoryTest, MemoryServesAgainOnceNobodyReadsIt) {
  SharedMemory pool({.max_bytes = 64 * kMegabyte});
  std::shared_ptr<SharedBlock> block = pool.Allocate(kMegabyte);
  ASSERT_NE(block, nullptr);
  const char* const address = block->data();
  const uint64_t generation = block->generation();
  const SegmentName name = block->segment();
  block.reset();
  block = pool.Allocate(kMegabyte - 100);
  EXPECT_EQ(block->data(), address);
  EXPECT_GT(block->generation(), generation);
  EXPECT_EQ(pool.Find(address + 10), block);
  EXPECT_EQ(pool.Find(&pool), nullptr);

  // While it is read, another piece serves.
  auto lease =
      BorrowedMemory::Get().Borrow(name, block->generation(), kMegabyte / 2);
  ASSERT_THAT(lease, IsOk());
  block.reset();
  block = pool.Allocate(kMegabyte);
  EXPECT_NE(block->data(), address);
  // The reader came in time; one that comes now is late.
  EXPECT_THAT(BorrowedMemory::Get().Borrow(name, generation, 100),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("another use")));
  *lease = {};
  block = pool.Allocate(kMegabyte);
  EXPECT_EQ(block->data(), address);
}

TEST(SharedMemoryTest, AReaderThatWasKilledHoldsNothing) {
  SharedMemory pool({.max_bytes = 64 * kMegabyte});
  std::shared_ptr<SharedBlock> block = pool.Allocate(kMegabyte);
  ASSERT_NE(block, nullptr);
  const char* const address = block->data();
  Signal reading;
  Child child([&] {
    const auto lease = BorrowedMemory::Get().Borrow(
        block->segment(), block->generation(), kMegabyte);
    if (!lease.ok()) return 1;
    reading.Give();
    while (true) pause();
  });
  reading.Await();
  block.reset();
  block = pool.Allocate(kMegabyte);
  EXPECT_NE(block->data(), address);
  block.reset();
  child.Kill();
  child.Wait();
  std::shared_ptr<SharedBlock> one = pool.Allocate(kMegabyte);
  std::shared_ptr<SharedBlock> two = pool.Allocate(kMegabyte);
  EXPECT_TRUE(one->data() == address || two->data() == address);
}

TEST(SharedMemoryTest, TheLimitHoldsAndIdleMemoryIsGivenBack) {
  SharedMemory pool({.max_bytes = 4 * kMegabyte, .idle = absl::ZeroDuration()});
  EXPECT_EQ(pool.Allocate(5 * kMegabyte), nullptr);
  std::shared_ptr<SharedBlock> first = pool.Allocate(3 * kMegabyte);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(pool.Allocate(2 * kMegabyte), nullptr);
  first.reset();
  // What is free makes room for what is of another size.
  std::shared_ptr<SharedBlock> second = pool.Allocate(kMegabyte);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(pool.Allocate(2 * kMegabyte), nullptr);
  EXPECT_LE(pool.bytes(), 4 * kMegabyte);
  second.reset();
  pool.Trim();
  EXPECT_EQ(pool.bytes(), 0u);
}

TEST(SharedMemoryTest, NoneAtAll) {
  SharedMemory pool({.max_bytes = 0});
  EXPECT_EQ(pool.Allocate(1), nullptr);
  EXPECT_EQ(pool.probe(), nullptr);
}

TEST(PrivateMemoryTest, BlocksServeAgainAndIdleOnesAreGivenBack) {
  constexpr uint64_t kHugePage = 2 * kMegabyte;
  PrivateMemory pool(
      {.idle = absl::ZeroDuration(), .max_idle_bytes = 3 * kHugePage});
  std::shared_ptr<char> block = pool.Allocate(2 * kHugePage - 5);
  ASSERT_NE(block, nullptr);
  char* const address = block.get();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(address) % 4096, 0u);
  std::memset(address, 'p', 2 * kHugePage - 5);
  // It is in use.
  std::shared_ptr<char> other = pool.Allocate(2 * kHugePage - 5);
  EXPECT_NE(other.get(), address);
  block.reset();
  EXPECT_EQ(pool.idle_bytes(), 2 * kHugePage);
  // Something much larger or smaller takes memory of its own.
  std::shared_ptr<char> large = pool.Allocate(5 * kHugePage);
  EXPECT_NE(large.get(), address);
  std::shared_ptr<char> again = pool.Allocate(2 * kHugePage - 4096);
  EXPECT_TRUE(again.get() == address && address[0] == 'p');
  // No more idles than may.
  again.reset();
  other.reset();
  large.reset();
  EXPECT_LE(pool.idle_bytes(), 3 * kHugePage);
  pool.Trim();
  EXPECT_EQ(pool.idle_bytes(), 0u);
  EXPECT_EQ(pool.Allocate(0), nullptr);
  EXPECT_EQ(pool.Allocate(SIZE_MAX), nullptr);
  EXPECT_EQ(pool.Allocate(size_t{1} << 62), nullptr);
}

TEST(SharedMemoryTest, WhatAReaderWritesStaysWithIt) {
  const absl::Cord moved = MoveToSharedMemory(Large('m'));
  const absl::StatusOr<absl::Cord> read =
      DecodeSharedBytes(EncodeSharedBytes(moved));
  ASSERT_THAT(read, IsOk());
  const absl::optional<absl::string_view> flat = read->TryFlat();
  ASSERT_TRUE(flat.has_value());
  const std::shared_ptr<char> own =
      BorrowedMemory::Get().MapPrivate(flat->substr(5000));
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(own.get()[0], 'm');
  std::memset(own.get(), 'w', kMegabyte - 5000);
  EXPECT_EQ(*read, moved);
  EXPECT_EQ(moved, Large('m'));
  EXPECT_EQ(BorrowedMemory::Get().MapPrivate("of nobody"), nullptr);
}

TEST(SegmentTest, TheOwnerCannotTakeMemoryAwayUnderAReader) {
  const auto segment = Segment::Create(kMegabyte);
  ASSERT_THAT(segment, IsOk());
  std::memset((*segment)->data(), 's', kMegabyte);
  const SegmentName name = (*segment)->name();
  EXPECT_NE(ftruncate(name.fd, 0), 0);
  EXPECT_NE(ftruncate(name.fd, 100 * kMegabyte), 0);
  const auto lease = BorrowedMemory::Get().Borrow(name, 0, kMegabyte);
  ASSERT_THAT(lease, IsOk());
  EXPECT_EQ(lease->data()[kMegabyte - 1], 's');
}

TEST(SegmentTest, WhatIsNoSegmentIsRefused) {
  BorrowedMemory& memory = BorrowedMemory::Get();
  const auto segment = Segment::Create(kMegabyte);
  ASSERT_THAT(segment, IsOk());
  SegmentName name = (*segment)->name();
  EXPECT_TRUE(BorrowedMemory::CanRead(name));
  EXPECT_THAT(memory.Borrow(name, 0, kMegabyte + 1),
              StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(memory.Borrow(name, 7, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  name.inode += 1;
  EXPECT_THAT(memory.Borrow(name, 0, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  name.fd = 9999;
  EXPECT_THAT(memory.Borrow(name, 0, 1), StatusIs(absl::StatusCode::kNotFound));

  // A file that can shrink; one that is none of memory; a pipe that would
  // block who opens it.
  const int plain = memfd_create("plain", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(plain, kMegabyte), 0);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  const std::string path = absl::StrCat(testing::TempDir(), "/file");
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(ftruncate(file, kMegabyte), 0);
  for (const int fd : {plain, ends[0], ends[1], null, file}) {
    struct stat st;
    ASSERT_EQ(fstat(fd, &st), 0);
    const SegmentName other{getpid(), fd, st.st_ino};
    EXPECT_FALSE(BorrowedMemory::CanRead(other));
    EXPECT_FALSE(memory.Borrow(other, 0, 1).ok());
    close(fd);
  }
  unlink(path.c_str());
}

// A container may be given the machine's /proc.
TEST(SegmentTest, AnotherNamespaceOfProcessesSharesNothing) {
  const auto segment = Segment::Create(kMegabyte);
  ASSERT_THAT(segment, IsOk());
  const SegmentName name = (*segment)->name();
  enum { kRefused, kTaken, kNotOpened, kNoNamespace };
  Child child([&]() -> int {
    if (unshare(CLONE_NEWPID) != 0) return kNoNamespace;
    Child inside([&]() -> int {
      if (!MappedSegment::Open(name).ok()) return kNotOpened;
      return BorrowedMemory::CanRead(name) ? kTaken : kRefused;
    });
    return inside.Wait();
  });
  const int result = child.Wait();
  if (result == kNoNamespace) GTEST_SKIP() << "none can be made here";
  EXPECT_EQ(result, kRefused);
}

TEST(SegmentTest, NamesAreParsedWithCare) {
  const SegmentName name{12, 34, 56};
  const auto parsed = SegmentName::Parse(name.ToString());
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(parsed->ToString(), "12:34:56");
  for (const char* text : {"", "1", "1:2", "1:2:3:4", "-1:2:3", "1:-2:3",
                           "1:2:x", "1:2:99999999999999999999"}) {
    EXPECT_FALSE(SegmentName::Parse(text).ok()) << text;
  }
}

TEST(SharedBytesTest, WhatIsPassedOnOutlivesItsOwner) {
  BorrowedMemory& memory = BorrowedMemory::Get();
  absl::Cord passed, expected;
  int last_fd = -1;
  for (const char fill : {'p', 'q'}) {
    auto owned = Segment::Create(kMegabyte);
    ASSERT_THAT(owned, IsOk());
    std::memset((*owned)->data(), fill, kMegabyte);
    const SegmentName name = (*owned)->name();
    // Two owners' names that differ by the inode only.
    if (last_fd >= 0) {
      ASSERT_EQ(name.fd, last_fd);
    }
    last_fd = name.fd;
    const auto lease = memory.Borrow(name, 0, kMegabyte);
    ASSERT_THAT(lease, IsOk());
    passed.Append(absl::MakeCordFromExternal(
        absl::string_view(lease->data(), kMegabyte), [lease = *lease] {}));
    expected.Append(Large(fill));
    owned->reset();
    EXPECT_FALSE(BorrowedMemory::CanRead(name));
  }
  // So that the child finds nothing mapped by its owner's name.
  memory.Trim(absl::ZeroDuration());
  EXPECT_EQ(memory.mappings(), 0u);
  const absl::Cord encoded = EncodeSharedBytes(MoveToSharedMemory(passed));
  EXPECT_LT(encoded.size(), 1000u);
  Child child([&] {
    const absl::StatusOr<absl::Cord> read = DecodeSharedBytes(encoded);
    return read.ok() && *read == expected ? 0 : 1;
  });
  EXPECT_EQ(child.Wait(), 0);
}

TEST(SharedBytesTest, TheOwnerLeavesAloneWhatWasPassedOn) {
  SharedMemory pool({.max_bytes = 64 * kMegabyte});
  std::shared_ptr<SharedBlock> block = pool.Allocate(kMegabyte);
  ASSERT_NE(block, nullptr);
  const char* const address = block->data();
  auto lease = BorrowedMemory::Get().Borrow(block->segment(),
                                            block->generation(), kMegabyte);
  ASSERT_THAT(lease, IsOk());
  const absl::Cord encoded = EncodeSharedBytes(absl::MakeCordFromExternal(
      absl::string_view(lease->data(), kMegabyte), [lease = *lease] {}));
  Signal reading;
  Child child([&] {
    const absl::StatusOr<absl::Cord> read = DecodeSharedBytes(encoded);
    if (!read.ok()) return 1;
    reading.Give();
    while (true) pause();
  });
  reading.Await();
  // Who passed it on reads it no more, and the one it was passed to does.
  *lease = {};
  block.reset();
  block = pool.Allocate(kMegabyte);
  EXPECT_NE(block->data(), address);
  child.Kill();
  child.Wait();
}

TEST(SharedBytesTest, AnyBytesAreAStatus) {
  const absl::Cord moved = MoveToSharedMemory(Large('z'));
  const std::string good(EncodeSharedBytes(moved));
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      const auto read = DecodeSharedBytes(absl::Cord(bad));
      // Whatever it is by now, all of it can be read.
      if (read.ok()) {
        size_t sum = 0;
        for (absl::string_view chunk : read->Chunks()) {
          for (size_t k = 0; k < chunk.size(); k += 4096) sum += chunk[k] != 0;
        }
        EXPECT_LE(sum, read->size());
      }
    }
    (void)DecodeSharedBytes(absl::Cord(good.substr(0, i)));
  }
}

TEST(SharedBytesTest, AMessageCannotDescribeMoreThanAnyMachineHas) {
  const absl::Cord moved = MoveToSharedMemory(Large('a', 16 * kMegabyte));
  const absl::Cord encoded = EncodeSharedBytes(moved);
  ASSERT_FALSE(encoded.empty());
  // The same piece as often as it takes: each costs its sender a few bytes.
  absl::Cord segments, piece;
  WireReader reader(encoded);
  WireField field;
  while (!reader.done()) {
    ASSERT_THAT(reader.Next(&field), IsOk());
    WireWriter writer;
    writer.Bytes(field.number, field.bytes);
    (field.number == 1 ? segments : piece).Append(std::move(writer).Take());
  }
  const uint64_t memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                          static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  auto describe = [&](uint64_t times) {
    absl::Cord message = segments;
    for (uint64_t i = 0; i < times; ++i) message.Append(piece);
    return DecodeSharedBytes(message);
  };
  const auto twice = describe(2);
  ASSERT_THAT(twice, IsOk());
  EXPECT_EQ(twice->size(), 32 * kMegabyte);
  EXPECT_THAT(describe(memory / kMegabyte + 1).status().ToString(),
              HasSubstr("memory"));
}

TEST(SharedMemoryTest, CopiesAreExact) {
  for (const size_t size : {0u, 1u, 63u, 1000u, 1u << 20, (3u << 20) + 17}) {
    for (const size_t shift : {0u, 1u, 17u}) {
      std::string from(size + shift, '\0');
      for (size_t i = 0; i < from.size(); ++i) {
        from[i] = static_cast<char>(i * 31 + i / 251);
      }
      std::string to(size + 64 + 2, 'e');
      CopyPastCache(to.data() + 1 + shift, from.data() + shift, size);
      EXPECT_EQ(to.substr(1 + shift, size), from.substr(shift, size));
      EXPECT_EQ(to[shift], 'e');
      EXPECT_EQ(to[1 + shift + size], 'e');
    }
  }
  // By two threads.
  std::string from(kTwoThreadBytes + 17, '\0');
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<char>(i * 31 + i / 251);
  }
  std::string to(from.size() + 2, 'e');
  CopyLarge(to.data() + 1, from.data(), from.size());
  EXPECT_TRUE(to == "e" + from + "e");
}

}  // namespace
}  // namespace miniray
