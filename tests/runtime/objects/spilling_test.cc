// A store that has less memory than it is given.

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/objects/spill_folder.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/objects/store_peer.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMega = 1'000'000;

// An empty folder, removed at the end.
class Folder {
 public:
  Folder() {
    const char* base = std::getenv("TEST_TMPDIR");
    path_ = absl::StrCat(base == nullptr ? "/tmp" : base, "/spill-XXXXXX");
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  int files() const {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      count += entry.path().empty() ? 0 : 1;
    }
    return count;
  }

 private:
  std::string path_;
};

std::string Name(int i) { return absl::StrCat("o", i); }

TEST(SpillingTest, TheLeastRecentlyUsedGoToDiskAndComeBack) {
  const Folder folder;
  auto store =
      StartStore({.max_bytes = 10 * kMega, .spill_folder = folder.path()});
  Peer peer(*store);
  for (int i = 0; i < 8; ++i) {
    ASSERT_THAT(peer.Put(Name(i), Noise(3 * kMega, i)), IsOk());
    // Used again and again: stays.
    ASSERT_EQ(*peer.Map(Name(0), store->address()), Noise(3 * kMega, 0));
  }
  ObjectStore::Stats stats = store->stats();
  EXPECT_EQ(stats.objects, 8);
  EXPECT_EQ(stats.bytes, 9 * kMega);
  EXPECT_EQ(stats.spilled_objects, 5);
  EXPECT_EQ(stats.spilled_bytes, 15 * kMega);
  EXPECT_EQ(folder.files(), 0);  // They have no names.
  // Read from afar, they need no memory; mapped, they come back.
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(*peer.Fetch(Name(i)), Noise(3 * kMega, i)) << i;
  }
  EXPECT_EQ(store->stats().spilled_objects, 5);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(*peer.Map(Name(i), store->address()), Noise(3 * kMega, i)) << i;
  }
  stats = store->stats();
  EXPECT_LE(stats.bytes, 10 * kMega);
  EXPECT_EQ(stats.spilled_objects, 8);
  for (int i = 0; i < 8; ++i) ASSERT_THAT(peer.Free(Name(i)), IsOk());
  stats = store->stats();
  EXPECT_EQ(stats.objects, 0);
  EXPECT_EQ(stats.bytes, 0);
  EXPECT_EQ(stats.spilled_objects, 0);
  EXPECT_EQ(stats.spilled_bytes, 0);
}

TEST(SpillingTest, WhoHasAnObjectMappedKeepsIt) {
  const Folder folder;
  auto store =
      StartStore({.max_bytes = 4 * kMega, .spill_folder = folder.path()});
  Peer peer(*store);
  ASSERT_THAT(peer.Put("o", Noise(3 * kMega)), IsOk());
  auto mapped = peer.Map("o", store->address());
  ASSERT_THAT(mapped, IsOk());
  ASSERT_THAT(peer.Put("other", Noise(3 * kMega, 8)), IsOk());
  EXPECT_EQ(store->stats().spilled_objects, 1);
  EXPECT_EQ(*mapped, Noise(3 * kMega));
}

TEST(SpillingTest, WhatIsBeingSentStaysInMemory) {
  const Folder folder;
  auto store =
      StartStore({.max_bytes = 90 * kMega, .spill_folder = folder.path()});
  Peer peer(*store);
  ASSERT_THAT(peer.Put("sent", Noise(40 * kMega, 1)), IsOk());
  ASSERT_THAT(peer.Put("idle", Noise(40 * kMega, 2)), IsOk());
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(store->address());
  grpc::ClientContext context;
  PrepareContext(&context, "secret", absl::Seconds(50));
  v1::FetchObjectRequest request;
  request.set_object_id("sent");
  const auto reader =
      v1::ObjectStore::NewStub(channel)->FetchObject(&context, request);
  v1::ObjectChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));  // The rest waits for us.
  std::string value = chunk.data();
  ASSERT_EQ(*peer.Map("idle", store->address()), Noise(40 * kMega, 2));
  // Used longest ago, but in use: the other one has to leave.
  ASSERT_THAT(peer.Put("next", Noise(40 * kMega, 3)), IsOk());
  EXPECT_EQ(store->stats().spilled_objects, 1);
  while (reader->Read(&chunk)) value += chunk.data();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(value, Noise(40 * kMega, 1));
  EXPECT_EQ(store->stats().spilled_objects, 1);
  ASSERT_THAT(peer.Map("sent", store->address()), IsOk());
  EXPECT_EQ(store->stats().spilled_objects, 1);  // It was there.
}

TEST(SpillingTest, WhatIsNeededAtOnceIsServedThoughItDoesNotFitTogether) {
  const Folder folder;
  auto source = StartStore();
  auto store =
      StartStore({.max_bytes = 6 * kMega, .spill_folder = folder.path()});
  for (int i = 0; i < 4; ++i) {
    ASSERT_THAT(Peer(*store).Put(Name(i), Noise(2 * kMega, i)), IsOk());
    ASSERT_THAT(Peer(*source).Put(Name(4 + i), Noise(2 * kMega, 4 + i)),
                IsOk());
  }
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Peer peer(*store);
      for (int round = 0; round < 6; ++round) {
        const int i = (t + round * 3) % 8;
        const std::string source_address =
            i < 4 ? store->address() : source->address();
        // It may leave again before it is mapped, as clients know.
        absl::StatusOr<absl::Cord> value;
        do {
          value = peer.Map(Name(i), source_address);
        } while (absl::IsNotFound(value.status()));
        ASSERT_THAT(value, IsOk()) << i;
        EXPECT_EQ(*value, Noise(2 * kMega, i));
        ASSERT_THAT(peer.Put(absl::StrCat("t", t, ".", round), Noise(kMega, t)),
                    IsOk());
        ASSERT_THAT(peer.Free(absl::StrCat("t", t, ".", round)), IsOk());
        ++good;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 24);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(*Peer(*store).Fetch(Name(i)), Noise(2 * kMega, i));
  }
  EXPECT_LE(store->stats().bytes, 6 * kMega);
}

TEST(SpillingTest, AnObjectThatNeverFitsIsRefusedAtOnce) {
  const Folder folder;
  auto store =
      StartStore({.max_bytes = 4 * kMega, .spill_folder = folder.path()});
  Peer peer(*store);
  EXPECT_THAT(peer.Put("o", Noise(5 * kMega)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("no room for 5000000 bytes"),
                             HasSubstr("of 4000000 bytes"))));
}

// A file system of 5 MB if this user may mount one; else files of this process
// are limited to 1 MB.
class SmallDisk {
 public:
  SmallDisk() {
    mounted_ =
        mount("none", folder_.path().c_str(), "tmpfs", 0, "size=5000000") == 0;
    if (mounted_) return;
    printf("no file system can be mounted (%s): a limit of this process\n",
           strerror(errno));
    handler_ = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old_);
    rlimit small = old_;
    small.rlim_cur = 1 << 20;
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~SmallDisk() {
    if (mounted_) {
      umount2(folder_.path().c_str(), MNT_DETACH);
    } else {
      setrlimit(RLIMIT_FSIZE, &old_);
      signal(SIGXFSZ, handler_);
    }
  }
  const std::string& path() const { return folder_.path(); }
  bool mounted() const { return mounted_; }

 private:
  Folder folder_;
  bool mounted_;
  rlimit old_ = {};
  sighandler_t handler_ = SIG_DFL;
};

TEST(SpillingTest, AFullDiskIsAnErrorThatNamesFolderSizeAndSpace) {
  const SmallDisk disk;
  auto source = StartStore();
  auto store =
      StartStore({.max_bytes = 6 * kMega, .spill_folder = disk.path()});
  Peer peer(*store);
  ASSERT_THAT(peer.Put("a", Noise(3 * kMega, 1)), IsOk());
  ASSERT_THAT(peer.Put("b", Noise(3 * kMega, 2)), IsOk());
  if (disk.mounted()) {
    ASSERT_THAT(peer.Put("c", Noise(3 * kMega, 3)), IsOk());
    EXPECT_EQ(store->stats().spilled_objects, 1);
  }
  const absl::Status full = peer.Put("d", Noise(3 * kMega, 4));
  EXPECT_THAT(full, StatusIs(absl::StatusCode::kResourceExhausted,
                             AllOf(HasSubstr(disk.path()),
                                   HasSubstr("an object of 3000000 bytes"),
                                   HasSubstr(" bytes free"),
                                   HasSubstr("no room for 3000000 bytes"),
                                   HasSubstr("--object_spill_dir"))));
  // Nothing is lost, and what leaves makes room.
  EXPECT_EQ(*peer.Fetch("a"), Noise(3 * kMega, 1));
  EXPECT_EQ(*peer.Fetch("b"), Noise(3 * kMega, 2));
  ASSERT_THAT(peer.Free("a"), IsOk());
  ASSERT_THAT(peer.Free("b"), IsOk());
  EXPECT_THAT(peer.Put("d", Noise(3 * kMega, 4)), IsOk());
  // A copy can be dropped though the disk is full.
  ASSERT_THAT(Peer(*source).Put("copy", Noise(2 * kMega)), IsOk());
  ASSERT_THAT(peer.Free("c"), IsOk());
  ASSERT_THAT(peer.Map("copy", source->address()), IsOk());
  EXPECT_THAT(peer.Put("e", Noise(3 * kMega, 5)), IsOk());
  EXPECT_EQ(*peer.Fetch("d"), Noise(3 * kMega, 4));
}

TEST(SpillingTest, AKilledStoreLeavesNothing) {
  const Folder folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto spill = SpillFolder::Open(folder.path());
    auto memory = MemoryFile::Create(4);
    if (!spill.ok() || !memory.ok() || !(*memory)->Append("data").ok()) {
      _exit(1);
    }
    auto file = (*spill)->Write(**memory);
    std::string bytes;
    if (!file.ok() || !(*file)->Read(0, 4, &bytes).ok() || bytes != "data" ||
        write(ready[1], "x", 1) != 1) {
      _exit(1);
    }
    pause();
  }
  char byte;
  close(ready[1]);
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(folder.files(), 0);
  // Where files cannot be made without a name, one may be left.
  std::ofstream(absl::StrCat(folder.path(), "/miniray-object-", child, "-abc"));
  std::ofstream(absl::StrCat(folder.path(), "/miniray-object-1-alive"));
  std::ofstream(absl::StrCat(folder.path(), "/somebody-elses"));
  EXPECT_EQ(folder.files(), 3);
  ASSERT_THAT(SpillFolder::Open(folder.path()), IsOk());
  EXPECT_EQ(folder.files(), 2);
}

TEST(SpillingTest, AFolderThatCannotBeUsedIsNoticedAtTheStart) {
  EXPECT_THAT(ObjectStore::Start({.spill_folder = "/proc/no/folder"}).status(),
              testing::Property(&absl::Status::message, HasSubstr("/proc/no")));
}

}  // namespace
}  // namespace miniray
