// Any bytes from the network are decoded or refused: no crash, no hang, and no
// more memory than the message is worth.

#include "tests/runtime/wire/fuzz.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "proto/actor.pb.h"
#include "proto/cluster.pb.h"
#include "runtime/wire/call_messages.h"
#include "runtime/wire/codec.h"

namespace {

// Bytes that this program has asked for.
std::atomic<uint64_t> allocated = 0;

}  // namespace

void* operator new(size_t size) {
  allocated.fetch_add(size, std::memory_order_relaxed);
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace shop {

enum class Colour : int8_t { kRed };

struct Order {
  int32_t id = 0;
  Colour colour = Colour::kRed;
  std::vector<std::string> items;
  std::map<std::string, std::vector<double>> notes;
  std::optional<uint8_t> count;
  std::pair<bool, std::array<float, 2>> place;
  absl::Cord raw;
};
MINIRAY_STRUCT(Order, id, colour, items, notes, count, place, raw);

struct Tree {
  int value = 0;
  std::vector<Tree> children;
};
MINIRAY_STRUCT(Tree, value, children);

}  // namespace shop

namespace miniray {
namespace {

constexpr uint64_t kSeed = 20240229;
constexpr int kRounds = 150000;

template <class T>
std::string Bytes(const T& value) {
  return std::string(EncodeValue(value).value());
}

// Runs `decode` and checks what it allocates.
template <class Decode>
void Bounded(size_t message_bytes, Decode decode) {
  const uint64_t before = allocated.load(std::memory_order_relaxed);
  decode();
  const uint64_t used = allocated.load(std::memory_order_relaxed) - before;
  // The smallest entry of a message has two bytes, and its object about 100.
  ASSERT_LE(used, 4096 + 256 * message_bytes);
}

// Damages the bytes of `value` and decodes them as what they were.
template <class T>
void FuzzValue(const T& value, uint64_t seed) {
  google::protobuf::SetLogHandler(nullptr);
  const std::string bytes = Bytes(value);
  Fuzzer fuzzer(seed, {bytes, bytes, Bytes(std::vector<int>{1, -1, 1 << 20})});
  int decoded = 0;
  for (int i = 0; i < kRounds / 10; ++i) {
    const std::string message = fuzzer.Message();
    const absl::Cord cord = fuzzer.AsCord(message);
    Bounded(message.size(), [&] {
      T out{};
      decoded += DecodeValue(cord, &out).ok();
    });
  }
  // Otherwise the damage would be too great to reach the inner layers.
  EXPECT_GT(decoded, kRounds / 10 / 100);
}

TEST(FuzzTest, Structs) {
  shop::Order order;
  order.items = {"pear", "fig", ""};
  order.notes = {{"a", {1, 2, 3}}, {"b", {}}};
  order.count = 200;
  order.raw = absl::Cord("\xff\xfe");
  FuzzValue(order, kSeed);
  shop::Tree tree;
  tree.children.resize(2);
  tree.children[0].children.resize(3);
  FuzzValue(tree, kSeed + 1);
}

TEST(FuzzTest, Containers) {
  FuzzValue(std::vector<int64_t>{1, -1, INT64_MAX, INT64_MIN}, kSeed + 2);
  FuzzValue(std::map<int, std::string>{{1, "one"}, {2, "two"}}, kSeed + 3);
  FuzzValue(std::tuple<bool, double, std::string>{true, 0.5, "x"}, kSeed + 4);
  FuzzValue(std::optional<std::vector<bool>>(std::vector<bool>{true, false}),
            kSeed + 5);
}

TEST(FuzzTest, Scalars) {
  FuzzValue(std::string("text"), kSeed + 6);
  FuzzValue(absl::Cord("bytes\xff"), kSeed + 7);
  FuzzValue(uint16_t{65535}, kSeed + 8);
}

TEST(FuzzTest, Messages) {
  v1::JobInfo job;
  job.set_job_id("job-1");
  job.set_pid(77);
  FuzzValue(job, kSeed + 9);
}

std::vector<std::string> Frames() {
  std::vector<std::string> frames;
  v1::CallFrame calls;
  for (uint64_t id : {uint64_t{1}, uint64_t{300}, ~uint64_t{0}}) {
    v1::Call* call = calls.add_calls();
    call->set_call_id(id);
    call->set_method("Method");
    call->add_args()->set_int_value(-5);
    call->add_args()->set_string_value("argument");
    frames.push_back(calls.SerializeAsString());
  }
  v1::ReplyFrame replies;
  replies.add_replies()->mutable_result()->set_double_value(0.5);
  replies.add_replies()->mutable_status()->set_code(5);
  replies.mutable_replies(1)->mutable_status()->set_message("why");
  replies.mutable_replies(1)->set_call_id(7);
  frames.push_back(replies.SerializeAsString());
  return frames;
}

TEST(FuzzTest, FramesAsProtobufReadsThem) {
  google::protobuf::SetLogHandler(nullptr);
  Fuzzer fuzzer(kSeed + 10, Frames());
  int both = 0;
  for (int i = 0; i < kRounds; ++i) {
    const std::string message = fuzzer.Message();
    const absl::Cord bytes = fuzzer.AsCord(message);
    absl::StatusOr<internal::CallFrame> frame;
    Bounded(message.size(), [&] { frame = internal::DecodeCallFrame(bytes); });
    Bounded(message.size(), [&] { (void)internal::DecodeReplyFrame(bytes); });
    v1::CallFrame parsed;
    if (!frame.ok() || !parsed.ParseFromString(message)) continue;
    ++both;
    ASSERT_EQ(static_cast<int>(frame->calls.size()), parsed.calls_size());
    for (int j = 0; j < parsed.calls_size(); ++j) {
      const internal::CallMessage& ours = frame->calls[static_cast<size_t>(j)];
      ASSERT_EQ(ours.call_id, parsed.calls(j).call_id());
      ASSERT_EQ(ours.method, parsed.calls(j).method());
      ASSERT_EQ(static_cast<int>(ours.args.size()),
                parsed.calls(j).args_size());
    }
  }
  EXPECT_GT(both, kRounds / 20);
}

}  // namespace
}  // namespace miniray
