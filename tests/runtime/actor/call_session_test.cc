// A caller's session, without gRPC: what it takes, sends, sends again, and when
// it holds back.

#include "runtime/actor/call_session.h"

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/shm/shared_bytes.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class FakeStream : public SessionStream {
 public:
  bool Write(const absl::Cord& frame, bool) override {
    ++writes;
    const absl::StatusOr<ReplyFrame> decoded = DecodeReplyFrame(frame);
    EXPECT_THAT(decoded, IsOk());
    if (!decoded.ok()) return false;
    if (decoded->session.has_value()) session = *decoded->session;
    for (const ReplyMessage& reply : decoded->replies) {
      replies.push_back(reply.call_id);
      statuses.push_back(reply.status);
    }
    return false;
  }
  void Read() override { ++reads; }
  void Finish(const absl::Status& status) override { finished = status; }
  void Cancel() override { cancelled = true; }
  CallPath path() const override { return CallPath::kUnixSocket; }

  int writes = 0, reads = 0;
  SessionMessage session;
  std::vector<uint64_t> replies;
  std::vector<absl::Status> statuses;
  std::optional<absl::Status> finished;
  bool cancelled = false;
};

class CallSessionTest : public testing::Test, public SessionOwner {
 protected:
  absl::StatusOr<CallQueue*> QueueFor(const CallMessage& call) override {
    if (call.method == "Refused") return absl::InvalidArgumentError("no");
    return &queue_;
  }
  void OnQueued(CallQueue*) override {}
  void OnResumed(const CallSession* session) override {
    queue_.Resume(session);
  }
  void OnReleased(const std::string& id) override { released_.push_back(id); }
  void CountBytes(CallPath path, bool sent, uint64_t bytes) override {
    bytes_[{path, sent}] += bytes;
  }

  std::shared_ptr<FakeStream> Attach(bool known) {
    auto stream = std::make_shared<FakeStream>();
    session_->Attach(stream, known);
    session_->OnWritten(stream.get(), true);
    return stream;
  }

  static absl::Cord Frame(const std::vector<uint64_t>& calls,
                          const std::vector<uint64_t>& acknowledged = {},
                          const std::vector<uint64_t>& cancelled = {},
                          const std::string& method = "Run") {
    WireWriter frame;
    CallMessage call;
    call.method = method;
    for (const uint64_t id : calls) {
      AppendCall(id, EncodeCallBody(call), &frame);
    }
    AppendAcknowledged(acknowledged, &frame);
    AppendCancelled(cancelled, &frame);
    return std::move(frame).Take();
  }

  // Takes the next call out, as a thread of the actor does; 0: none may run.
  uint64_t RunNext(const std::string& result = "r") {
    std::unique_ptr<QueuedCall> call = queue_.Pop(absl::InfinitePast());
    if (call == nullptr) return 0;
    const uint64_t id = call->message.call_id;
    if (!call->Take(QueuedCall::State::kRunning)) return RunNext(result);
    ReplyMessage reply;
    reply.call_id = id;
    // In one piece, as tensors are: a copy would come in small ones.
    reply.result = absl::Cord(std::string(result));
    wanted_ = call->session->Reply(*call, reply);
    return id;
  }

  CallQueue queue_;
  bool wanted_ = false;  // The last reply.
  std::vector<std::string> released_;
  // By path, and whether they were sent.
  std::map<std::pair<CallPath, bool>, uint64_t> bytes_;
  const std::shared_ptr<CallSession> session_ =
      std::make_shared<CallSession>("caller", this);
};

TEST_F(CallSessionTest, CallsRunOnceAndRepliesComeUntilTheyAreAcknowledged) {
  auto first = Attach(false);
  EXPECT_FALSE(first->session.known);
  session_->OnFrame(first.get(), Frame({1, 2, 3}));
  EXPECT_EQ(RunNext(), 1u);
  session_->OnWritten(first.get(), true);
  EXPECT_EQ(RunNext(), 2u);
  EXPECT_THAT(first->replies, ElementsAre(1, 2));
  // The link breaks; 1 was acknowledged over the new one.
  auto second = Attach(true);
  EXPECT_TRUE(first->cancelled);
  EXPECT_TRUE(second->session.known);
  EXPECT_EQ(second->session.last_call_id, 3u);
  EXPECT_THAT(second->replies, ElementsAre(1, 2));
  session_->OnWritten(second.get(), true);
  session_->OnFrame(second.get(), Frame({2, 3, 4}, {1}));  // 2, 3 were here.
  // The old stream has no say any more.
  session_->OnFrame(first.get(), Frame({5}));
  EXPECT_FALSE(session_->OnEnded(first.get()));
  EXPECT_EQ(RunNext(), 3u);
  EXPECT_EQ(RunNext(), 4u);
  EXPECT_EQ(RunNext(), 0u);
  EXPECT_TRUE(session_->OnEnded(second.get()));
  auto third = Attach(true);
  EXPECT_THAT(third->replies, ElementsAre(2, 3, 4));
}

TEST_F(CallSessionTest, BytesAreCountedByTheWayTheyWent) {
  auto stream = Attach(false);
  bytes_.clear();  // What the session says of itself.
  const absl::Cord small = Frame({1});
  session_->OnFrame(stream.get(), small);
  EXPECT_EQ(RunNext("r"), 1u);
  session_->OnWritten(stream.get(), true);
  ReplyMessage reply;
  reply.call_id = 1;
  reply.result = absl::Cord("r");
  EXPECT_THAT(
      bytes_,
      UnorderedElementsAre(
          Pair(Pair(CallPath::kUnixSocket, false), small.size()),
          Pair(Pair(CallPath::kUnixSocket, true), EncodeReply(reply).size())));

  // Large arguments and results lie in memory, and a little in the frames.
  bytes_.clear();
  CallMessage call;
  call.method = "Run";
  call.args = {absl::Cord(std::string(1 << 20, 'a'))};
  const absl::Cord body = MoveToSharedMemory(EncodeCallBody(call));
  const absl::Cord shared = EncodeSharedBytes(body);
  ASSERT_FALSE(shared.empty());
  WireWriter writer;
  AppendCall(2, body, &writer, shared);
  AppendReadsMemory(&writer);
  const absl::Cord frame = std::move(writer).Take();
  session_->OnFrame(stream.get(), frame);
  EXPECT_EQ(RunNext(std::string(3 << 20, 'r')), 2u);
  session_->OnWritten(stream.get(), true);
  const auto counted = [&](CallPath path, bool sent) {
    return bytes_[{path, sent}];
  };
  EXPECT_EQ(counted(CallPath::kSharedMemory, false), body.size());
  EXPECT_EQ(counted(CallPath::kSharedMemory, true), 3u << 20);
  EXPECT_EQ(counted(CallPath::kUnixSocket, false), frame.size());
  EXPECT_LT(frame.size(), 1000u);
  EXPECT_LT(counted(CallPath::kUnixSocket, true), 1000u);
  EXPECT_GT(counted(CallPath::kUnixSocket, true), 0u);
}

TEST_F(CallSessionTest, AGapOrGarbageEndsTheStream) {
  auto stream = Attach(false);
  session_->OnFrame(stream.get(), Frame({1, 3}));
  ASSERT_TRUE(stream->finished.has_value());
  EXPECT_THAT(*stream->finished, StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(RunNext(), 1u);  // It arrived.
  auto next = Attach(true);
  session_->OnFrame(next.get(), absl::Cord("\xff\xff"));
  ASSERT_TRUE(next->finished.has_value());
}

TEST_F(CallSessionTest, CancelledAndRefusedCallsAreAnsweredAndDoNotRun) {
  auto stream = Attach(false);
  session_->OnFrame(stream.get(), Frame({1, 2}));
  session_->OnFrame(stream.get(), Frame({3}, {}, {2, 77}));
  session_->OnWritten(stream.get(), true);
  session_->OnFrame(stream.get(), Frame({4}, {}, {}, "Refused"));
  session_->OnWritten(stream.get(), true);
  EXPECT_EQ(RunNext(), 1u);
  session_->OnWritten(stream.get(), true);
  EXPECT_EQ(RunNext(), 3u);
  EXPECT_THAT(stream->replies, UnorderedElementsAre(1, 2, 3, 4));
  EXPECT_THAT(stream->statuses[0], StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(stream->statuses[1],
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// While a method runs for long, nobody takes them out.
TEST_F(CallSessionTest, CancelledCallsTakeNoMemoryFromThoseThatWait) {
  auto stream = Attach(false);
  uint64_t id = 0;
  auto send = [&](size_t bytes) {
    CallMessage call;
    call.call_id = ++id;
    call.method = "Run";
    call.args = {absl::Cord(std::string(bytes, 'a'))};
    session_->OnFrame(stream.get(), EncodeCall(call));
    session_->OnWritten(stream.get(), true);
  };
  for (int i = 0; i < 10; ++i) send(1);
  for (int i = 0; i < 12; ++i) {
    send(int64_t{4} << 20);
    session_->OnFrame(stream.get(), Frame({}, {}, {id}));
    session_->OnWritten(stream.get(), true);
    EXPECT_LT(queue_.size(), 10u + 4u);
    EXPECT_EQ(queue_.waiting(), 10u);
  }
  for (int i = 0; i < 2000; ++i) {
    send(1);
    session_->OnFrame(stream.get(), Frame({}, {}, {id}));
    session_->OnWritten(stream.get(), true);
    ASSERT_LT(queue_.size(), 10u + 64u + 4u);
  }
  EXPECT_EQ(queue_.waiting(), 10u);
  for (uint64_t i = 1; i <= 10; ++i) EXPECT_EQ(RunNext(), i);
  EXPECT_EQ(RunNext(), 0u);
}

TEST_F(CallSessionTest, TheTimeThatACallHasLeftCountsFromItsArrival) {
  auto stream = Attach(false);
  CallMessage call;
  call.method = "Run";
  const absl::Cord body = EncodeCallBody(call);
  WireWriter frame;
  AppendCall(1, body, &frame);
  AppendCall(2, body, &frame, {}, 1);
  AppendCall(3, body, &frame, {}, 60'000'000);
  AppendCall(4, body, &frame, {}, std::numeric_limits<uint64_t>::max());
  const absl::Time before = absl::Now();
  session_->OnFrame(stream.get(), std::move(frame).Take());
  const absl::Time after = absl::Now();
  std::vector<std::unique_ptr<QueuedCall>> calls;
  while (auto next = queue_.Pop(absl::InfinitePast())) {
    calls.push_back(std::move(next));
  }
  ASSERT_EQ(calls.size(), 4u);
  EXPECT_EQ(calls[0]->deadline, absl::InfiniteFuture());
  EXPECT_FALSE(calls[0]->expired());
  while (absl::Now() <= calls[1]->deadline) {
  }
  EXPECT_TRUE(calls[1]->expired());
  // Times are kept in microseconds.
  EXPECT_GE(calls[2]->deadline,
            before + absl::Minutes(1) - absl::Microseconds(1));
  EXPECT_LE(calls[2]->deadline, after + absl::Minutes(1));
  EXPECT_FALSE(calls[3]->expired());
}

TEST_F(CallSessionTest, ReadingPausesWhileTooMuchWaits) {
  auto stream = Attach(false);
  std::vector<uint64_t> ids;
  for (uint64_t id = 1; id <= 8192; ++id) ids.push_back(id);
  session_->OnFrame(stream.get(), Frame(ids));
  EXPECT_EQ(stream->reads, 1);
  EXPECT_EQ(RunNext(), 1u);
  EXPECT_EQ(stream->reads, 2);
}

TEST_F(CallSessionTest, NothingRunsForACallerThatDoesNotAcknowledge) {
  auto stream = Attach(false);
  session_->OnFrame(stream.get(), Frame({1, 2, 3, 4}));
  const std::string large(uint64_t{100} << 20, 'x');
  for (uint64_t id = 1; id <= 3; ++id) {
    EXPECT_EQ(RunNext(large), id);
    session_->OnWritten(stream.get(), true);
  }
  EXPECT_TRUE(session_->stalled());
  EXPECT_EQ(RunNext(), 0u);  // It waits aside,
  session_->OnFrame(stream.get(), Frame({5}, {}));
  EXPECT_EQ(RunNext(), 0u);
  const int reads = stream->reads;
  EXPECT_GT(reads, 2);  // but what acknowledges is read,
  session_->OnFrame(stream.get(), Frame({}, {1, 2, 3}));
  EXPECT_FALSE(session_->stalled());
  EXPECT_EQ(RunNext(), 4u);  // and then they run in their order.
  EXPECT_EQ(RunNext(), 5u);
  EXPECT_LT(session_->reply_bytes(), 100u);
}

TEST_F(CallSessionTest, AClosedSessionAnswersAllAndEnds) {
  auto stream = Attach(false);
  session_->OnFrame(stream.get(), Frame({1}));
  session_->Close(absl::UnavailableError("the actor ends"));
  EXPECT_FALSE(stream->finished.has_value());  // A call has no reply yet.
  session_->OnFrame(stream.get(), Frame({2}));
  session_->OnWritten(stream.get(), true);
  EXPECT_EQ(RunNext(), 1u);
  session_->OnWritten(stream.get(), true);
  EXPECT_THAT(stream->replies, UnorderedElementsAre(1, 2));
  ASSERT_TRUE(stream->finished.has_value());
  EXPECT_THAT(*stream->finished, StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(CallSessionTest, AnAbandonedSessionKeepsNothing) {
  auto stream = Attach(false);
  session_->OnFrame(stream.get(), Frame({1, 2}));
  EXPECT_EQ(RunNext(), 1u);
  EXPECT_TRUE(wanted_);
  session_->Abandon();
  EXPECT_EQ(session_->reply_bytes(), 0u);
  EXPECT_EQ(RunNext(), 2u);
  // So the actor knows that nobody will release what it keeps for it.
  EXPECT_FALSE(wanted_);
  EXPECT_EQ(session_->reply_bytes(), 0u);
  EXPECT_THAT(released_, IsEmpty());
}

}  // namespace
}  // namespace internal
}  // namespace miniray
