#include "runtime/rpc/byte_buffer.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

std::vector<grpc::Slice> Slices(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  return slices;
}

// Memory whose owner notices when it is let go.
class Watched {
 public:
  explicit Watched(size_t size) : bytes_(size, 'w') {}
  absl::Cord Cord() {
    ++holders_;
    return absl::MakeCordFromExternal(
        bytes_, [this](absl::string_view) { --holders_; });
  }
  int holders() const { return holders_; }
  const char* data() const { return bytes_.data(); }

 private:
  const std::string bytes_;
  int holders_ = 0;
};

TEST(ByteBufferTest, AnySizeThereAndBack) {
  for (size_t size : {0u, 1u, 22u, 23u, 24u, 4095u, 4096u, 4097u, 1000000u}) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 13);
    const grpc::ByteBuffer buffer = ToByteBuffer(absl::Cord(bytes));
    EXPECT_EQ(buffer.Length(), size);
    const auto back = ToCord(buffer);
    ASSERT_THAT(back, IsOk());
    EXPECT_TRUE(*back == bytes) << size;
  }
}

TEST(ByteBufferTest, ManyPiecesThereAndBack) {
  std::string expected;
  absl::Cord cord;
  for (size_t i = 0; i < 200; ++i) {
    const std::string piece(i * 97 % 9000, static_cast<char>('a' + i % 26));
    expected += piece;
    cord.Append(absl::Cord(piece));
  }
  const auto back = ToCord(ToByteBuffer(cord));
  ASSERT_THAT(back, IsOk());
  EXPECT_TRUE(*back == expected);
}

TEST(ByteBufferTest, LargePiecesAreSharedWithGrpcUntilItIsDone) {
  Watched memory(100000);
  {
    absl::Cord cord("head ");
    cord.Append(memory.Cord());
    grpc::ByteBuffer buffer = ToByteBuffer(cord);
    cord.Clear();
    EXPECT_EQ(memory.holders(), 1);
    bool shared = false;
    for (const grpc::Slice& slice : Slices(buffer)) {
      shared = shared ||
               reinterpret_cast<const char*>(slice.begin()) == memory.data();
    }
    EXPECT_TRUE(shared);
    EXPECT_EQ(memory.holders(), 1);
  }
  EXPECT_EQ(memory.holders(), 0);
}

TEST(ByteBufferTest, EveryPieceKeepsAllAlive) {
  Watched first(5000), second(6000);
  std::vector<grpc::Slice> kept;
  {
    absl::Cord cord = first.Cord();
    cord.Append(second.Cord());
    std::vector<grpc::Slice> slices = Slices(ToByteBuffer(cord));
    ASSERT_EQ(slices.size(), 2u);
    kept.push_back(slices[1]);
  }
  EXPECT_EQ(kept[0].size(), 6000u);
  EXPECT_EQ(kept[0].begin()[5999], 'w');
  EXPECT_EQ(second.holders(), 1);
  kept.clear();
  EXPECT_EQ(first.holders() + second.holders(), 0);
}

TEST(ByteBufferTest, LargeSlicesAreSharedWithTheCord) {
  auto slice = std::make_unique<grpc::Slice>(std::string(50000, 'r'));
  const auto* data = reinterpret_cast<const char*>(slice->begin());
  auto buffer = std::make_unique<grpc::ByteBuffer>(slice.get(), 1);
  const auto cord = ToCord(*buffer);
  ASSERT_THAT(cord, IsOk());
  slice.reset();
  buffer.reset();
  const auto flat = cord->TryFlat();
  ASSERT_TRUE(flat.has_value());
  EXPECT_TRUE(flat->data() == data);
  EXPECT_TRUE(*flat == std::string(50000, 'r'));  // Still there.
}

TEST(ByteBufferTest, ABufferWithoutMessageIsAnError) {
  const grpc::ByteBuffer none;
  EXPECT_THAT(ToCord(none), StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace miniray
