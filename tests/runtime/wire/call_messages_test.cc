// proto/actor.proto's frames, ours against protobuf's own classes.

#include "runtime/wire/call_messages.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/actor.pb.h"
#include "runtime/wire/wire.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr uint64_t kMaxId = std::numeric_limits<uint64_t>::max();

std::string IntValue(int64_t number) {
  v1::Value value;
  value.set_int_value(number);
  return value.SerializeAsString();
}

TEST(CallMessagesTest, OurCallsAreReadByProtobuf) {
  CallMessage first;
  first.call_id = kMaxId;
  first.method = "Add";
  first.args = {absl::Cord(IntValue(-5)), absl::Cord()};
  CallMessage second;
  second.call_id = 2;
  second.method = "Reset";
  absl::Cord frame = EncodeCall(first);
  frame.Append(EncodeCall(second));  // Entries put together are a frame.

  v1::CallFrame parsed;
  ASSERT_TRUE(parsed.ParseFromString(std::string(frame)));
  ASSERT_EQ(parsed.calls_size(), 2);
  EXPECT_EQ(parsed.calls(0).call_id(), kMaxId);
  EXPECT_EQ(parsed.calls(0).method(), "Add");
  ASSERT_EQ(parsed.calls(0).args_size(), 2);
  EXPECT_EQ(parsed.calls(0).args(0).int_value(), -5);
  EXPECT_EQ(parsed.calls(0).args(1).kind_case(), v1::Value::KIND_NOT_SET);
  EXPECT_EQ(parsed.calls(1).call_id(), 2u);
  EXPECT_EQ(parsed.calls(1).args_size(), 0);
  EXPECT_EQ(parsed.SerializeAsString(), std::string(frame));
}

TEST(CallMessagesTest, TheTimeThatIsLeftGoesBesideTheBody) {
  CallMessage call;
  call.method = "Add";
  const absl::Cord body = EncodeCallBody(call);
  WireWriter none, some, beside;
  AppendCall(1, body, &none);
  AppendCall(1, body, &some, /*shared=*/{}, 1'500'000);
  AppendCall(1, body, &beside, /*shared=*/absl::Cord("elsewhere"), kMaxId);
  const absl::Cord without = std::move(none).Take();
  const absl::Cord with = std::move(some).Take();
  v1::CallFrame parsed;
  ASSERT_TRUE(parsed.ParseFromString(std::string(with)));
  EXPECT_EQ(parsed.calls(0).time_left_us(), 1'500'000u);
  EXPECT_EQ(parsed.SerializeAsString(), std::string(with));
  EXPECT_EQ(DecodeCallFrame(with)->calls.front().time_left_us, 1'500'000u);
  // A call without a limit takes nothing for it.
  parsed.mutable_calls(0)->clear_time_left_us();
  EXPECT_EQ(parsed.SerializeAsString(), std::string(without));
  EXPECT_EQ(DecodeCallFrame(without)->calls.front().time_left_us, 0u);

  const auto frame = DecodeCallFrame(
      std::move(beside).Take(),
      [&](const absl::Cord&) -> absl::StatusOr<absl::Cord> { return body; });
  ASSERT_THAT(frame, IsOk());
  EXPECT_EQ(frame->calls.front().method, "Add");
  EXPECT_EQ(frame->calls.front().time_left_us, kMaxId);
}

TEST(CallMessagesTest, ProtobufsCallsAreReadByUs) {
  v1::CallFrame frame;
  v1::Call* call = frame.add_calls();
  call->set_call_id(77);
  call->set_method("Scale");
  call->add_args()->set_double_value(0.5);
  call->add_args()->mutable_tensor()->set_data(std::string(5000, 't'));
  frame.add_calls();  // All at their defaults: an empty entry.

  const auto parsed = DecodeCallFrame(absl::Cord(frame.SerializeAsString()));
  ASSERT_THAT(parsed, IsOk());
  const std::vector<CallMessage>* calls = &parsed->calls;
  ASSERT_THAT(*calls, SizeIs(2));
  EXPECT_EQ((*calls)[0].call_id, 77u);
  EXPECT_EQ((*calls)[0].method, "Scale");
  ASSERT_THAT((*calls)[0].args, SizeIs(2));
  EXPECT_EQ(std::string((*calls)[0].args[0]),
            call->args(0).SerializeAsString());
  EXPECT_EQ(std::string((*calls)[0].args[1]),
            call->args(1).SerializeAsString());
  EXPECT_EQ((*calls)[1].call_id, 0u);
  EXPECT_THAT((*calls)[1].method, IsEmpty());
  EXPECT_THAT((*calls)[1].args, IsEmpty());
}

TEST(CallMessagesTest, OurRepliesAreReadByProtobuf) {
  ReplyMessage good;
  good.call_id = 1;
  good.result = absl::Cord(IntValue(42));
  ReplyMessage bad;
  bad.call_id = 2;
  bad.status = absl::NotFoundError("no such shelf");
  absl::Cord frame = EncodeReply(good);
  frame.Append(EncodeReply(bad));

  v1::ReplyFrame parsed;
  ASSERT_TRUE(parsed.ParseFromString(std::string(frame)));
  ASSERT_EQ(parsed.replies_size(), 2);
  EXPECT_EQ(parsed.replies(0).call_id(), 1u);
  EXPECT_FALSE(parsed.replies(0).has_status());
  EXPECT_EQ(parsed.replies(0).result().int_value(), 42);
  EXPECT_EQ(parsed.replies(1).status().code(),
            static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(parsed.replies(1).status().message(), "no such shelf");
  EXPECT_FALSE(parsed.replies(1).has_result());
}

TEST(CallMessagesTest, WhatElseAFrameHoldsPassesBothWays) {
  WireWriter writer;
  CallMessage call;
  call.method = "Train";
  call.concurrency_group = "slow";
  call.keep_result = true;
  call.wanted_bytes = kMaxId;
  AppendCall(5, EncodeCallBody(call), &writer);
  AppendAcknowledged({1, 300, kMaxId}, &writer);
  AppendCancelled({7}, &writer);
  AppendReleased("object-1", &writer);
  AppendTakesReferences(&writer);
  const absl::Cord bytes = std::move(writer).Take();
  v1::CallFrame parsed;
  ASSERT_TRUE(parsed.ParseFromString(std::string(bytes)));
  EXPECT_EQ(parsed.SerializeAsString(), std::string(bytes));
  EXPECT_EQ(parsed.calls(0).call_id(), 5u);
  EXPECT_EQ(parsed.calls(0).concurrency_group(), "slow");
  EXPECT_TRUE(parsed.calls(0).keep_result());
  const auto frame = DecodeCallFrame(bytes);
  ASSERT_THAT(frame, IsOk());
  EXPECT_EQ(frame->calls.front().concurrency_group, "slow");
  EXPECT_TRUE(frame->calls.front().keep_result);
  EXPECT_EQ(frame->calls.front().wanted_bytes, kMaxId);
  EXPECT_TRUE(frame->takes_references);
  EXPECT_FALSE(DecodeCallFrame(EncodeCall(call))->takes_references);
  EXPECT_THAT(frame->acknowledged, ElementsAre(1u, 300u, kMaxId));
  EXPECT_THAT(frame->cancelled, ElementsAre(7u));
  EXPECT_THAT(frame->released, ElementsAre("object-1"));

  v1::ReplyFrame reply;
  ASSERT_TRUE(reply.ParseFromString(
      std::string(EncodeSession({.known = true, .last_call_id = 300}))));
  EXPECT_TRUE(reply.session().known());
  EXPECT_EQ(reply.session().last_call_id(), 300u);
  const auto session = DecodeReplyFrame(EncodeSession({}));
  ASSERT_THAT(session, IsOk());
  ASSERT_TRUE(session->session.has_value());
  EXPECT_FALSE(session->session->known);
  EXPECT_FALSE(DecodeReplyFrame(absl::Cord())->session.has_value());
}

TEST(CallMessagesTest, AResultThatStayedSaysSo) {
  ReplyMessage reply;
  reply.call_id = 3;
  v1::Value value;
  value.mutable_object()->set_object_id("result-1");
  reply.result = absl::Cord(value.SerializeAsString());
  EXPECT_FALSE(DecodeReplyFrame(EncodeReply(reply))->replies.front().kept);
  reply.kept = true;
  const absl::Cord bytes = EncodeReply(reply);
  v1::ReplyFrame parsed;
  ASSERT_TRUE(parsed.ParseFromString(std::string(bytes)));
  EXPECT_TRUE(parsed.replies(0).kept());
  EXPECT_EQ(parsed.SerializeAsString(), std::string(bytes));
  const auto frame = DecodeReplyFrame(bytes);
  ASSERT_THAT(frame, IsOk());
  EXPECT_TRUE(frame->replies.front().kept);
  EXPECT_EQ(frame->replies.front().result, reply.result);
}

TEST(CallMessagesTest, AResultSaysUnderWhatItsReferencesAreHeld) {
  ReplyMessage reply;
  reply.call_id = 3;
  reply.result = absl::Cord("\x10\x02");
  reply.held_id = "result-2";
  for (const absl::Cord& shared : {absl::Cord(), absl::Cord("pieces")}) {
    const absl::Cord bytes = EncodeReply(reply, shared);
    const auto frame = DecodeReplyFrame(bytes, [](const absl::Cord& pieces) {
      return absl::StatusOr<absl::Cord>(pieces);
    });
    ASSERT_THAT(frame, IsOk());
    EXPECT_EQ(frame->replies.front().held_id, "result-2");
  }
  v1::ReplyFrame parsed;
  ASSERT_TRUE(parsed.ParseFromString(std::string(EncodeReply(reply))));
  EXPECT_EQ(parsed.replies(0).held_id(), "result-2");
  EXPECT_EQ(parsed.SerializeAsString(), std::string(EncodeReply(reply)));
  reply.status = absl::UnavailableError("lost");
  EXPECT_EQ(DecodeReplyFrame(EncodeReply(reply))->replies.front().held_id, "");
}

TEST(CallMessagesTest, AFrameOfTooManyEntriesIsRefused) {
  const std::vector<uint64_t> ids(kMaxFrameEntries + 1, 1);
  WireWriter acknowledged;
  AppendAcknowledged(ids, &acknowledged);
  EXPECT_THAT(DecodeCallFrame(std::move(acknowledged).Take()),
              StatusIs(kInvalid));
  std::string empty_calls;
  for (size_t i = 0; i <= kMaxFrameEntries; ++i) {
    empty_calls.append("\x0a\x00", 2);
  }
  EXPECT_THAT(DecodeCallFrame(absl::Cord(empty_calls)), StatusIs(kInvalid));
  EXPECT_THAT(DecodeReplyFrame(absl::Cord(empty_calls)), StatusIs(kInvalid));
}

TEST(CallMessagesTest, EveryStatusCodePasses) {
  for (int code = 0; code <= 16; ++code) {
    ReplyMessage reply;
    reply.status = absl::Status(static_cast<absl::StatusCode>(code), "why");
    const auto decoded = DecodeReplyFrame(EncodeReply(reply));
    ASSERT_THAT(decoded, IsOk());
    ASSERT_THAT(decoded->replies, SizeIs(1));
    EXPECT_EQ(decoded->replies.front().status, reply.status);
  }
}

TEST(CallMessagesTest, ProtobufsRepliesAreReadByUs) {
  v1::ReplyFrame frame;
  v1::Reply* reply = frame.add_replies();
  reply->set_call_id(kMaxId);
  reply->mutable_result()->set_string_value("fine");
  frame.add_replies()->mutable_status()->set_code(5);
  frame.add_replies()->mutable_status();  // Code 0: OK.
  const auto parsed = DecodeReplyFrame(absl::Cord(frame.SerializeAsString()));
  ASSERT_THAT(parsed, IsOk());
  const std::vector<ReplyMessage>* replies = &parsed->replies;
  ASSERT_THAT(*replies, SizeIs(3));
  EXPECT_EQ((*replies)[0].call_id, kMaxId);
  EXPECT_THAT((*replies)[0].status, IsOk());
  EXPECT_EQ(std::string((*replies)[0].result),
            reply->result().SerializeAsString());
  EXPECT_THAT((*replies)[1].status, StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT((*replies)[2].status, IsOk());
}

TEST(CallMessagesTest, AnUnknownCodeIsUnknown) {
  for (int code : {-1, 17, 1000, std::numeric_limits<int>::min()}) {
    v1::ReplyFrame frame;
    frame.add_replies()->mutable_status()->set_code(code);
    frame.mutable_replies(0)->mutable_status()->set_message("what");
    const auto replies =
        DecodeReplyFrame(absl::Cord(frame.SerializeAsString()));
    ASSERT_THAT(replies, IsOk());
    EXPECT_THAT(replies->replies.front().status,
                StatusIs(absl::StatusCode::kUnknown, "what"));
  }
}

TEST(CallMessagesTest, TextThatIsNotUtf8StaysReadableByProtobuf) {
  // An exception's text may hold anything; a protobuf `string` may not.
  ReplyMessage reply;
  reply.status = absl::InternalError("cannot open caf\xe9 (\xff)");
  v1::ReplyFrame parsed;
  ASSERT_TRUE(parsed.ParseFromString(std::string(EncodeReply(reply))));
  EXPECT_EQ(parsed.replies(0).status().message(),
            "cannot open caf\xef\xbf\xbd (\xef\xbf\xbd)");
}

TEST(CallMessagesTest, LargeArgumentsAreNotCopied) {
  const std::string memory(100000, 'm');
  CallMessage call;
  call.args = {absl::MakeCordFromExternal(memory, [](absl::string_view) {})};
  const auto decoded = DecodeCallFrame(EncodeCall(call));
  ASSERT_THAT(decoded, IsOk());
  const auto flat = decoded->calls.front().args.front().TryFlat();
  ASSERT_TRUE(flat.has_value());
  EXPECT_EQ(flat->data(), memory.data());
}

TEST(CallMessagesTest, EmptyFrame) {
  EXPECT_THAT(DecodeCallFrame(absl::Cord()).value().calls, IsEmpty());
  EXPECT_THAT(DecodeReplyFrame(absl::Cord()).value().replies, IsEmpty());
}

TEST(CallMessagesTest, UnknownFieldsAndWrongWireTypesAreSkipped) {
  // As protobuf itself does, so that later versions may add fields.
  WireWriter entry;
  entry.Varint(1, 9);
  entry.Varint(2, 1);                            // method, as a number
  entry.Bytes(1, absl::string_view("id"));       // call_id, as text
  entry.Bytes(100, absl::string_view("later"));  // unknown
  WireWriter frame;
  frame.Varint(1, 3);  // calls, as a number
  frame.Message(1, std::move(entry));
  frame.Bytes(99, absl::string_view("later"));
  const absl::Cord bytes = std::move(frame).Take();
  const auto decoded = DecodeCallFrame(bytes);
  ASSERT_THAT(decoded, IsOk());
  ASSERT_THAT(decoded->calls, SizeIs(1));
  EXPECT_EQ(decoded->calls.front().call_id, 9u);
  EXPECT_THAT(decoded->calls.front().method, IsEmpty());
  v1::CallFrame parsed;
  ASSERT_TRUE(parsed.ParseFromString(std::string(bytes)));
  EXPECT_EQ(parsed.calls(0).call_id(), 9u);
}

TEST(CallMessagesTest, CutFramesAreRefused) {
  CallMessage call;
  call.call_id = 300;
  call.method = "Method";
  call.args = {absl::Cord(IntValue(1))};
  ReplyMessage reply;
  reply.call_id = 300;
  reply.status = absl::AbortedError("text");
  const std::string calls(EncodeCall(call)), replies(EncodeReply(reply));
  for (size_t size = 1; size < calls.size(); ++size) {
    EXPECT_THAT(DecodeCallFrame(absl::Cord(calls.substr(0, size))),
                StatusIs(kInvalid));
  }
  for (size_t size = 1; size < replies.size(); ++size) {
    EXPECT_THAT(DecodeReplyFrame(absl::Cord(replies.substr(0, size))),
                StatusIs(kInvalid));
  }
}

TEST(CallMessagesTest, AnErrorDeepInsideIsFound) {
  // An entry whose own fields do not fill it out.
  EXPECT_THAT(
      DecodeCallFrame(absl::Cord(absl::string_view("\x0a\x02\x12\x05", 4))),
      StatusIs(kInvalid));
  EXPECT_THAT(DecodeReplyFrame(
                  absl::Cord(absl::string_view("\x0a\x04\x12\x02\x08\x80", 6))),
              StatusIs(kInvalid));
}

}  // namespace
}  // namespace internal
}  // namespace miniray
