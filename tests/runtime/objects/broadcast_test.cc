// Objects that go from node to node, and nodes that fail meanwhile.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/objects/chunk_stream.h"
#include "runtime/objects/object_table.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/objects/store_peer.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kBytes = 20'000'000;

bool Never() { return false; }

TEST(ObjectTableTest, EachReaderIsSentToTheOneBefore) {
  ObjectTable table({.max_bytes = 1 << 30, .max_objects = 100});
  for (const auto& [id, size] : {std::pair("large", 3 << 20), {"small", 4}}) {
    ObjectTable::Arrival arrival;
    arrival.id = id;
    arrival.total_bytes = size;
    auto incoming = *table.Begin(arrival, &Never);
    ASSERT_THAT(incoming->file->Append(std::string(size, 'x')), IsOk());
    ASSERT_THAT(table.Finish(std::move(incoming)), IsOk());
  }
  auto find = [&](const std::string& store,
                  std::vector<std::string> failed = {},
                  const std::string& id = "large") {
    return *table.FindSource(
        id, {.store_address = store, .failed_peers = std::move(failed)});
  };
  auto first = find("a:1");
  EXPECT_THAT(first.peer_address, IsEmpty());
  EXPECT_EQ(find("b:1").peer_address, "a:1");
  EXPECT_EQ(find("c:1").peer_address, "b:1");
  EXPECT_EQ(find("d:1").peer_address, "c:1");
  // Its peer failed: it gets it from the source, and nobody is sent to that
  // peer any more.
  auto direct = find("d:1", {"c:1"});
  EXPECT_THAT(direct.peer_address, IsEmpty());
  EXPECT_EQ(find("e:1").peer_address, "d:1");
  EXPECT_EQ(find("b:1").peer_address, "e:1");  // It asks anew.
  // Drivers, and stores that come by advice, are not sent on.
  EXPECT_THAT(find("").peer_address, IsEmpty());
  EXPECT_THAT(table.FindSource("large", {.from_copy = true})->peer_address,
              IsEmpty());
  // The source has nothing else to do.
  first = {};
  direct = {};
  EXPECT_THAT(find("f:1").peer_address, IsEmpty());
  // To find another one would take longer.
  auto small = find("a:1", {}, "small");
  EXPECT_THAT(find("b:1", {}, "small").peer_address, IsEmpty());
  // All are told of its end.
  const ObjectTable::Copies copies = table.Free({"large"});
  std::vector<std::string> stores;
  for (const auto& [store, ids] : copies) stores.push_back(store);
  EXPECT_THAT(stores, ElementsAre("a:1", "b:1", "c:1", "d:1", "e:1", "f:1"));
}

// A store that has only the first half of each object, and then dies, or
// stalls.
class HalfStore : public v1::ObjectStore::Service {
 public:
  HalfStore(std::string value, bool stalls)
      : value_(std::move(value)), stalls_(stalls) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~HalfStore() override {
    end_.Notify();
    server_->Shutdown();
  }

  grpc::Status FetchObject(
      grpc::ServerContext* context, const v1::FetchObjectRequest* request,
      grpc::ServerWriter<v1::ObjectChunk>* writer) override {
    ++asked_;
    EXPECT_TRUE(request->from_copy());
    v1::ObjectChunk chunk;
    chunk.set_total_bytes(static_cast<int64_t>(value_.size()));
    for (size_t at = request->offset(); at < value_.size() / 2; at += 1 << 20) {
      chunk.set_data(
          value_.substr(at, std::min<size_t>(1 << 20, value_.size() / 2 - at)));
      writer->Write(chunk);
      chunk.Clear();
    }
    while (stalls_ && !context->IsCancelled() &&
           !end_.WaitForNotificationWithTimeout(absl::Milliseconds(10))) {
    }
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "it died");
  }

  const std::string& address() const { return address_; }
  int asked() const { return asked_; }

 private:
  const std::string value_;
  const bool stalls_;
  std::string address_;
  std::atomic<int> asked_ = 0;
  absl::Notification end_;
  std::unique_ptr<grpc::Server> server_;
};

// Asks the source for an object like a store at `address` does, and reads
// nothing of it: the source is busy until this is gone.
class IdleReader {
 public:
  IdleReader(const ObjectStore& source, const std::string& id,
             const std::string& address)
      : channel_(MakeChannel(source.address())) {
    PrepareContext(&context_, "secret", absl::Seconds(50));
    v1::FetchObjectRequest request;
    request.set_object_id(id);
    request.set_store_address(address);
    reader_ = std::make_unique<ChunkReader>(
        channel_.get(), "/miniray.v1.ObjectStore/FetchObject", &context_,
        request);
    Chunk chunk;
    EXPECT_TRUE(reader_->Read(&chunk));
  }
  ~IdleReader() {
    context_.TryCancel();
    (void)reader_->Finish();
  }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  std::unique_ptr<ChunkReader> reader_;
};

TEST(BroadcastTest, APeerThatDiesInTheMiddleIsReplacedByTheSource) {
  auto source = StartStore(), node = StartStore();
  const std::string value = Noise(kBytes);
  HalfStore half(value, /*stalls=*/false);
  ASSERT_THAT(Peer(*source).Put("o", value), IsOk());
  const IdleReader busy(*source, "o", half.address());
  auto mapped = Peer(*node).Map("o", source->address());
  ASSERT_THAT(mapped, IsOk());
  EXPECT_EQ(*mapped, value);
  EXPECT_EQ(half.asked(), 1);
}

TEST(BroadcastTest, APeerThatStallsIsReplacedByTheSource) {
  auto source = StartStore();
  auto node = StartStore({.peer_patience = absl::Milliseconds(300)});
  const std::string value = Noise(kBytes);
  HalfStore half(value, /*stalls=*/true);
  ASSERT_THAT(Peer(*source).Put("o", value), IsOk());
  const IdleReader busy(*source, "o", half.address());
  auto mapped = Peer(*node).Map("o", source->address());
  ASSERT_THAT(mapped, IsOk());
  EXPECT_EQ(*mapped, value);
  EXPECT_EQ(half.asked(), 1);
}

TEST(BroadcastTest, APeerThatHasNothingOrIsNobodyIsReplacedByTheSource) {
  auto source = StartStore(), other = StartStore(), node = StartStore();
  const std::string value = Noise(kBytes);
  ASSERT_THAT(Peer(*source).Put("o", value), IsOk());
  std::string nobody;
  {
    auto gone = StartStore();
    nobody = gone->address();
  }
  {
    const IdleReader busy(*source, "o", nobody);
    EXPECT_EQ(*Peer(*node).Map("o", source->address()), value);
  }
  ASSERT_THAT(Peer(*node).Free("o"), IsOk());
  const IdleReader busy(*source, "o", other->address());
  EXPECT_EQ(*Peer(*node).Map("o", source->address()), value);
}

TEST(BroadcastTest, ACopyIsPassedOnWhileItComes) {
  ObjectTable table({.max_bytes = 1 << 30, .max_objects = 100});
  ObjectTable::Arrival arrival;
  arrival.id = "o";
  arrival.total_bytes = 8;
  arrival.source = "127.0.0.1:1";
  auto incoming = *table.Begin(arrival, &Never);
  ASSERT_THAT(incoming->file->Append("half"), IsOk());
  EXPECT_THAT(table.FindSource("o", {}), StatusIs(absl::StatusCode::kNotFound));
  auto source = table.FindSource("o", {.from_copy = true});
  ASSERT_THAT(source, IsOk());
  EXPECT_EQ(source->size, 8);
  auto mapped = *source->memory->Map();
  EXPECT_EQ(*source->memory->AwaitMore(0, absl::Seconds(30)), 4);
  EXPECT_EQ(std::string(mapped.get(), 4), "half");
  EXPECT_EQ(*source->memory->AwaitMore(4, absl::Milliseconds(1)), 4);
  ASSERT_THAT(incoming->file->Append("more"), IsOk());
  EXPECT_EQ(*source->memory->AwaitMore(4, absl::Seconds(30)), 8);
  EXPECT_EQ(std::string(mapped.get(), 8), "halfmore");
  ASSERT_THAT(table.Finish(std::move(incoming)), IsOk());
  // One that does not become complete.
  arrival.id = "never";
  incoming = *table.Begin(arrival, &Never);
  source = table.FindSource("never", {.from_copy = true});
  ASSERT_THAT(source, IsOk());
  table.Abandon(std::move(incoming));
  EXPECT_THAT(source->memory->AwaitMore(0, absl::Seconds(30)),
              StatusIs(absl::StatusCode::kAborted));
}

TEST(BroadcastTest, ManyNodesAtOnceGetItFromEachOther) {
  auto source = StartStore();
  const std::string value = Noise(kBytes);
  ASSERT_THAT(Peer(*source).Put("o", value), IsOk());
  std::vector<std::unique_ptr<ObjectStore>> nodes;
  for (int i = 0; i < 6; ++i) nodes.push_back(StartStore());
  std::vector<std::thread> readers;
  for (const auto& node : nodes) {
    for (int i = 0; i < 2; ++i) {
      readers.emplace_back([&] {
        auto mapped = Peer(*node).Map("o", source->address());
        ASSERT_THAT(mapped, IsOk());
        EXPECT_EQ(*mapped, value);
      });
    }
  }
  for (std::thread& reader : readers) reader.join();
  int64_t served = source->stats().served;
  for (const auto& node : nodes) {
    EXPECT_EQ(node->stats().fetched, 1);
    served += node->stats().served;
  }
  EXPECT_EQ(served, 6);
  ASSERT_THAT(Peer(*source).Free("o"), IsOk());
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  for (const auto& node : nodes) {
    while (node->stats().objects > 0 && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(2));
    }
    EXPECT_EQ(node->stats().objects, 0);
  }
}

TEST(BroadcastTest, NodesThatDieMeanwhileHoldUpNobody) {
  auto source = StartStore();
  const std::string value = Noise(kBytes);
  for (int round = 0; round < 5; ++round) {
    const std::string id = absl::StrCat("o", round);
    ASSERT_THAT(Peer(*source).Put(id, value), IsOk());
    std::vector<std::unique_ptr<ObjectStore>> nodes;
    for (int i = 0; i < 6; ++i) nodes.push_back(StartStore());
    std::atomic<int> good = 0;
    std::vector<std::thread> readers;
    for (size_t i = 0; i < nodes.size(); ++i) {
      readers.emplace_back([&, i, peer = std::make_shared<Peer>(*nodes[i])] {
        auto mapped = peer->Map(id, source->address());
        if (i % 3 != 1) {
          ASSERT_THAT(mapped, IsOk());
        }
        if (mapped.ok()) good += *mapped == value;
      });
    }
    // Every third, at some moment of the transfer.
    absl::SleepFor(absl::Milliseconds(5 + 10 * round));
    nodes[1].reset();
    nodes[4].reset();
    for (std::thread& reader : readers) reader.join();
    EXPECT_GE(good, 4);
    ASSERT_THAT(Peer(*source).Free(id), IsOk());
  }
}

TEST(BroadcastTest, ASourceThatGoesOnSendingElsewhereIsGivenUp) {
  // It sends everybody to a peer that has nothing.
  class Evasive : public v1::ObjectStore::Service {
   public:
    grpc::Status FetchObject(
        grpc::ServerContext*, const v1::FetchObjectRequest*,
        grpc::ServerWriter<v1::ObjectChunk>* writer) override {
      v1::ObjectChunk chunk;
      chunk.set_total_bytes(10);
      chunk.set_peer_address("127.0.0.1:1");
      writer->Write(chunk);
      return grpc::Status::OK;
    }
  };
  Evasive evasive;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(&evasive);
  auto server = builder.BuildAndStart();
  auto node = StartStore();
  EXPECT_FALSE(Peer(*node).Map("o", absl::StrCat("127.0.0.1:", port)).ok());
  EXPECT_EQ(node->stats().bytes, 0);
}

TEST(BroadcastTest, OffsetsOutsideOfAnObjectAreRefused) {
  auto store = StartStore();
  Peer peer(*store);
  ASSERT_THAT(peer.Put("o", "0123456789"), IsOk());
  v1::FetchObjectRequest request;
  request.set_offset(4);
  EXPECT_EQ(*peer.Fetch("o", request), "456789");
  request.set_offset(10);
  EXPECT_EQ(*peer.Fetch("o", request), "");
  for (const int64_t offset : {int64_t{-1}, int64_t{11}, int64_t{1} << 62}) {
    request.set_offset(offset);
    EXPECT_THAT(peer.Fetch("o", request),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace miniray
