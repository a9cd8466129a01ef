// In which order, and with how many writes to the network, queued messages
// leave a stream.

#include "runtime/head/stream_link.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/support/status.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A stream that is told what to do, and does nothing by itself.
class FakeStream {
 public:
  void StartWrite(const v1::NodeCommand* command,
                  const grpc::WriteOptions& options) {
    writes.push_back(command->stop_actor().actor_id() +
                     (options.get_buffer_hint() ? " waits" : " leaves"));
  }
  void Finish(const grpc::Status& status) {
    writes.push_back("end " + std::to_string(status.error_code()));
  }

  std::vector<std::string> Take() { return std::exchange(writes, {}); }

  std::vector<std::string> writes;
};

class StreamLinkTest : public ::testing::Test {
 protected:
  void Push(const std::string& id) {
    v1::NodeCommand command;
    command.mutable_stop_actor()->set_actor_id(id);
    link_.Push(std::move(command));
  }

  FakeStream stream_;
  StreamLink<FakeStream, v1::NodeCommand> link_{&stream_};
};

TEST_F(StreamLinkTest, AMessageWithNoneBehindItLeavesAtOnce) {
  Push("a");
  EXPECT_THAT(stream_.Take(), ElementsAre("a leaves"));
  link_.Written(true);
  EXPECT_THAT(stream_.Take(), IsEmpty());
  Push("b");
  EXPECT_THAT(stream_.Take(), ElementsAre("b leaves"));
}

TEST_F(StreamLinkTest, TheLastOfThoseThatWaitTakesAllAlong) {
  Push("a");
  Push("b");
  Push("c");
  Push("d");
  EXPECT_THAT(stream_.Take(), ElementsAre("a leaves"));
  link_.Written(true);
  EXPECT_THAT(stream_.Take(), ElementsAre("b waits"));
  link_.Written(true);
  EXPECT_THAT(stream_.Take(), ElementsAre("c waits"));
  link_.Written(true);
  EXPECT_THAT(stream_.Take(), ElementsAre("d leaves"));
  link_.Written(true);
  EXPECT_THAT(stream_.Take(), IsEmpty());
}

TEST_F(StreamLinkTest, WhatIsDrainedLeavesBeforeTheEnd) {
  Push("a");
  Push("b");
  link_.End(grpc::Status::OK, /*drain=*/true);
  Push("c");  // Too late.
  link_.Written(true);
  link_.Written(true);
  EXPECT_THAT(stream_.Take(), ElementsAre("a leaves", "b leaves", "end 0"));
}

TEST_F(StreamLinkTest, NothingFollowsABrokenWrite) {
  Push("a");
  Push("b");
  link_.Written(false);
  EXPECT_THAT(stream_.Take(), ElementsAre("a leaves"));
}

TEST_F(StreamLinkTest, WhatMayGetLostFindsRoomOrNot) {
  v1::NodeCommand command;
  command.mutable_stop_actor()->set_actor_id(std::string(100, 'x'));
  EXPECT_TRUE(link_.TryPush(command, 50));   // Nothing waits.
  EXPECT_FALSE(link_.TryPush(command, 50));  // More than 100 bytes wait.
  link_.Written(true);
  EXPECT_TRUE(link_.TryPush(command, 50));
  EXPECT_EQ(stream_.writes.size(), 2);
}

}  // namespace
}  // namespace miniray
