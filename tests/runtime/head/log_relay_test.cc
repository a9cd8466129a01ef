#include "runtime/head/log_relay.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/head/call_record_ring.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/head/cluster_state_testutil.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class FakeSink : public LogRelay::Sink {
 public:
  void Data(v1::LogChunk chunk) override {
    data.push_back(chunk.data());
    lost += chunk.lost_bytes();
    if (!chunk.error().empty()) notices.push_back(chunk.error());
  }
  void End(absl::Status status, int32_t /*incarnation*/) override {
    ends.push_back(status);
  }
  std::vector<std::string> data;
  int64_t lost = 0;
  std::vector<std::string> notices;
  std::vector<absl::Status> ends;
};

class LogRelayTest : public ::testing::Test {
 protected:
  uint64_t Open() {
    const uint64_t id = relay_.NewId();
    v1::ReadNodeLog request;
    request.set_actor_id("a");
    EXPECT_THAT(relay_.Open(id, link_, request, sink_), IsOk());
    return id;
  }
  void Chunk(uint64_t id, const std::string& data, bool last = false,
             const NodeLink* link = nullptr) {
    v1::LogChunk chunk;
    chunk.set_request_id(id);
    chunk.set_data(data);
    chunk.set_last(last);
    relay_.Chunk(link == nullptr ? link_.get() : link, chunk);
  }

  LogRelay relay_;
  std::shared_ptr<FakeLink> link_ = std::make_shared<FakeLink>();
  std::shared_ptr<FakeSink> sink_ = std::make_shared<FakeSink>();
};

TEST_F(LogRelayTest, PassesOnUntilTheEnd) {
  const uint64_t id = Open();
  ASSERT_EQ(link_->sent.size(), 1);
  EXPECT_EQ(link_->sent[0].read_log().request_id(), id);
  EXPECT_EQ(link_->sent[0].read_log().actor_id(), "a");
  EXPECT_EQ(link_->sent[0].read_log().window_bytes(), LogRelay::kWindowBytes);
  Chunk(id, "one");
  Chunk(id, "two", true);
  Chunk(id, "late");
  EXPECT_THAT(sink_->data, ElementsAre("one", "two"));
  EXPECT_THAT(sink_->ends, ElementsAre(IsOk()));
}

TEST_F(LogRelayTest, AnErrorOfTheNode) {
  const uint64_t id = Open();
  v1::LogChunk chunk;
  chunk.set_request_id(id);
  chunk.set_last(true);
  chunk.set_error("no such file");
  relay_.Chunk(link_.get(), chunk);
  EXPECT_THAT(sink_->ends, ElementsAre(StatusIs(absl::StatusCode::kNotFound,
                                                HasSubstr("no such file"))));
}

TEST_F(LogRelayTest, ANoticeOfTheNodeReachesTheReader) {
  const uint64_t id = Open();
  Chunk(id, "one");
  v1::LogChunk chunk;
  chunk.set_request_id(id);
  chunk.set_error("output lost");
  relay_.Chunk(link_.get(), chunk);
  Chunk(id, "two", true);
  EXPECT_THAT(sink_->data, ElementsAre("one", "", "two"));
  EXPECT_THAT(sink_->notices, ElementsAre("output lost"));
  EXPECT_THAT(sink_->ends, ElementsAre(IsOk()));
}

TEST_F(LogRelayTest, AnotherNodeCannotAnswer) {
  const uint64_t id = Open();
  const FakeLink other;
  Chunk(id, "forged", true, &other);
  EXPECT_THAT(sink_->data, IsEmpty());
  EXPECT_THAT(sink_->ends, IsEmpty());
}

TEST_F(LogRelayTest, MoreComesOnlyOnceItWasPassedOn) {
  const uint64_t id = Open();
  Chunk(id, std::string(LogRelay::kWindowBytes, 'x'));
  relay_.Grant(id, 5);
  ASSERT_EQ(link_->sent.size(), 2);
  EXPECT_EQ(link_->sent[1].grant_log().bytes(), 5);
  Chunk(id, "12345");
  EXPECT_THAT(sink_->ends, IsEmpty());
  Chunk(id, "6");  // Not asked for.
  EXPECT_THAT(sink_->ends, ElementsAre(StatusIs(absl::StatusCode::kInternal)));
  EXPECT_TRUE(link_->sent.back().has_end_read_log());
}

TEST_F(LogRelayTest, AReaderThatLeavesIsTold) {
  const uint64_t id = Open();
  relay_.Close(id);
  EXPECT_EQ(link_->sent.back().end_read_log().request_id(), id);
  Chunk(id, "late", true);
  EXPECT_THAT(sink_->data, IsEmpty());
  EXPECT_THAT(sink_->ends, IsEmpty());
}

TEST_F(LogRelayTest, ANodeThatGoesEndsWhatIsReadThere) {
  Open();
  relay_.NodeGone(link_.get());
  EXPECT_THAT(sink_->ends, ElementsAre(StatusIs(absl::StatusCode::kUnavailable,
                                                StartsWith("the log of "))));
}

TEST_F(LogRelayTest, ThereIsALimit) {
  for (size_t i = 0; i < LogRelay::kMaxReaders; ++i) Open();
  EXPECT_THAT(relay_.Open(relay_.NewId(), link_, {}, sink_),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(CallRecordRingTest, KeepsTheNewest) {
  CallRecordRing ring(3);
  for (int i = 0; i < 5; ++i) {
    v1::CallRecords records;
    v1::CallRecord* record = records.add_records();
    record->set_job_id(i % 2 == 0 ? "even" : "odd");
    record->set_pid(i);
    records.set_dropped(i == 0 ? 10 : 0);
    ring.Add("n", records);
  }
  const v1::GetCallRecordsResponse all = ring.Get("");
  EXPECT_EQ(all.records_size(), 3);
  EXPECT_EQ(all.records(0).pid(), 2);
  EXPECT_EQ(all.records(0).node_id(), "n");
  EXPECT_EQ(all.dropped(), 12);
  const v1::GetCallRecordsResponse odd = ring.Get("odd");
  ASSERT_EQ(odd.records_size(), 1);
  EXPECT_EQ(odd.records(0).pid(), 3);
}

}  // namespace
}  // namespace miniray
