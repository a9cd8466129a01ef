// Objects whose sizes and offsets fit no int.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/objects/chunk_stream.h"
#include "runtime/objects/memory_file.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/objects/store_peer.h"

namespace miniray {
namespace {

// In kB; 0 where the system does not say.
int64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t value = 0;
  while (file >> name) {
    if (name == "MemAvailable:" && file >> value) return value;
  }
  return 0;
}

TEST(LargeObjectTest, FiveGigabytesAreHandedOverMappedAndReadFromTheirEnd) {
  // Mostly holes: it takes hardly any memory.
  constexpr int64_t kSize = (int64_t{5} << 30) + 77;
  const ScopedFd fd(memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), kSize), 0);
  const std::map<int64_t, std::string> marks = {
      {0, "begin"},
      {(int64_t{1} << 31) - 3, "around 2^31"},
      {(int64_t{1} << 32) - 3, "around 2^32"},
      {kSize - 3, "end"}};
  for (const auto& [offset, text] : marks) {
    const auto size =
        static_cast<size_t>(std::min<int64_t>(text.size(), kSize - offset));
    ASSERT_EQ(pwrite(fd.get(), text.data(), size, offset), size);
  }
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS,
                  F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            0);
  struct stat st;
  ASSERT_EQ(fstat(fd.get(), &st), 0);
  v1::SharedFile shared;
  shared.set_machine(MachineId());
  shared.set_pid(getpid());
  shared.set_fd(fd.get());
  shared.set_inode(st.st_ino);
  shared.set_size(kSize);

  auto store = StartStore(int64_t{6} << 30);
  Peer peer(*store);
  ASSERT_THAT(peer.Adopt("o", shared), IsOk());
  EXPECT_EQ(store->stats().bytes, kSize);
  EXPECT_THAT(peer.Adopt("second", shared),
              StatusIs(absl::StatusCode::kResourceExhausted));
  auto mapped = peer.Map("o", store->address());
  ASSERT_THAT(mapped, IsOk());
  ASSERT_EQ(static_cast<int64_t>(mapped->size()), kSize);
  for (const auto& [offset, text] : marks) {
    const std::string expected =
        text.substr(0, static_cast<size_t>(kSize - offset));
    EXPECT_EQ(mapped->Subcord(offset, expected.size()), expected);
  }
  v1::FetchObjectRequest request;
  request.set_offset(kSize - 3'000'000);
  const auto tail = peer.Fetch("o", request);
  ASSERT_THAT(tail, IsOk());
  EXPECT_EQ(tail->size(), 3'000'000u);
  EXPECT_EQ(tail->substr(tail->size() - 3), "end");
}

TEST(LargeObjectTest, MoreThanTwoGigabytesAreSentAndReceived) {
  constexpr int64_t kBlock = 50'000'001;
  constexpr int64_t kBlocks = 43;
  if (AvailableMemory() < 6'000'000) {
    GTEST_SKIP() << "this machine has less than 6 GB of memory to spare";
  }
  // The same block again and again.
  const std::string block = Noise(kBlock);
  absl::Cord value;
  for (int i = 0; i < kBlocks; ++i) {
    value.Append(absl::MakeCordFromExternal(block, [] {}));
  }
  ASSERT_GT(value.size(), size_t{1} << 31);
  auto store = StartStore(int64_t{3} << 30);
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(store->address());
  {
    grpc::ClientContext context;
    PrepareContext(&context, "secret", absl::Minutes(2));
    Chunk first;
    first.object_id = "o";
    ASSERT_THAT(PutChunks(channel.get(), &context, std::move(first), value),
                IsOk());
  }
  EXPECT_EQ(store->stats().bytes, kBlock * kBlocks);
  grpc::ClientContext context;
  PrepareContext(&context, "secret", absl::Minutes(2));
  v1::FetchObjectRequest request;
  request.set_object_id("o");
  ChunkReader reader(channel.get(), "/miniray.v1.ObjectStore/FetchObject",
                     &context, request);
  Chunk chunk;
  int64_t received = 0;
  bool same = true;
  while (reader.Read(&chunk)) {
    EXPECT_EQ(chunk.total_bytes, received == 0 ? kBlock * kBlocks : 0);
    for (absl::string_view bytes : chunk.data.Chunks()) {
      while (!bytes.empty()) {
        const auto at = static_cast<size_t>(received % kBlock);
        const absl::string_view expected =
            absl::string_view(block).substr(at, bytes.size());
        same = same && bytes.substr(0, expected.size()) == expected;
        received += static_cast<int64_t>(expected.size());
        bytes.remove_prefix(expected.size());
      }
    }
  }
  EXPECT_THAT(reader.Finish(), IsOk());
  EXPECT_EQ(received, kBlock * kBlocks);
  EXPECT_TRUE(same);
}

}  // namespace
}  // namespace miniray
