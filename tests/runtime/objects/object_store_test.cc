// The object store of a node, over gRPC, with what clients and strangers send.

#include "runtime/objects/object_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/object.grpc.pb.h"
#include "runtime/objects/memory_file.h"
#include "runtime/objects/object_table.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::unique_ptr<ObjectStore> StartStore(int64_t max_bytes = 1 << 28) {
  auto store = ObjectStore::Start({.token = "secret", .max_bytes = max_bytes});
  EXPECT_THAT(store, IsOk());
  return *std::move(store);
}

class Peer {
 public:
  explicit Peer(const ObjectStore& store, std::string token = "secret")
      : stub_(v1::ObjectStore::NewStub(MakeChannel(store.address()))),
        token_(std::move(token)) {}

  // In chunks of 1 MiB.
  absl::Status Put(const std::string& id, const std::string& value,
                   const std::string& job = "job-1", int64_t total = -1) {
    grpc::ClientContext context;
    PrepareContext(&context, token_, absl::Seconds(30));
    v1::PutObjectResponse response;
    auto writer = stub_->PutObject(&context, &response);
    v1::ObjectChunk chunk;
    chunk.set_object_id(id);
    chunk.set_job_id(job);
    chunk.set_total_bytes(total < 0 ? static_cast<int64_t>(value.size())
                                    : total);
    size_t offset = 0;
    do {
      chunk.set_data(value.substr(offset, 1 << 20));
      offset += chunk.data().size();
      if (!writer->Write(chunk)) break;
      chunk.Clear();
    } while (offset < value.size());
    writer->WritesDone();
    return FromGrpcStatus(writer->Finish());
  }

  absl::StatusOr<std::string> Fetch(const std::string& id) {
    grpc::ClientContext context;
    PrepareContext(&context, token_, absl::Seconds(30));
    v1::FetchObjectRequest request;
    request.set_object_id(id);
    auto reader = stub_->FetchObject(&context, request);
    std::string value;
    v1::ObjectChunk chunk;
    while (reader->Read(&chunk)) value += chunk.data();
    const absl::Status status = FromGrpcStatus(reader->Finish());
    if (!status.ok()) return status;
    return value;
  }

  absl::StatusOr<absl::Cord> Map(const std::string& id,
                                 const std::string& source) {
    grpc::ClientContext context;
    PrepareContext(&context, token_, absl::Seconds(30));
    v1::LocateObjectRequest request;
    request.set_object_id(id);
    request.set_source_address(source);
    request.set_job_id("job-1");
    v1::LocateObjectResponse response;
    const absl::Status status =
        FromGrpcStatus(stub_->LocateObject(&context, request, &response));
    if (!status.ok()) return status;
    return MapFile(response.path(), response.size());
  }

  absl::Status Free(const std::string& id) {
    grpc::ClientContext context;
    PrepareContext(&context, token_, absl::Seconds(30));
    v1::FreeObjectsRequest request;
    request.add_object_ids(id);
    v1::FreeObjectsResponse response;
    return FromGrpcStatus(stub_->FreeObjects(&context, request, &response));
  }

 private:
  std::unique_ptr<v1::ObjectStore::Stub> stub_;
  std::string token_;
};

std::string Noise(size_t size) {
  std::mt19937 random(7);
  std::string text(size, 0);
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

TEST(ObjectStoreTest, WhatIsPutIsFetchedMappedAndFreed) {
  auto store = StartStore();
  Peer peer(*store);
  const std::string value = Noise(3'500'000);
  ASSERT_THAT(peer.Put("o", value), IsOk());
  EXPECT_THAT(peer.Put("o", value), IsOk());  // An earlier try got through.
  ASSERT_THAT(peer.Put("empty", ""), IsOk());
  EXPECT_EQ(store->stats().objects, 2);
  EXPECT_EQ(store->stats().bytes, 3'500'000);
  EXPECT_EQ(*peer.Fetch("o"), value);
  EXPECT_EQ(*peer.Fetch("empty"), "");
  auto mapped = peer.Map("o", store->address());
  ASSERT_THAT(mapped, IsOk());
  ASSERT_THAT(peer.Free("o"), IsOk());
  EXPECT_EQ(store->stats().bytes, 0);
  EXPECT_THAT(peer.Fetch("o"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("was freed")));
  EXPECT_THAT(peer.Map("o", store->address()),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(*mapped, value);  // Who has it mapped keeps it.
  EXPECT_TRUE(mapped->TryFlat().has_value());
}

TEST(ObjectStoreTest, AnObjectComesToANodeOnceHoweverManyAsk) {
  auto source = StartStore(), node = StartStore();
  const std::string value = Noise(20'000'000);
  ASSERT_THAT(Peer(*source).Put("o", value), IsOk());
  std::vector<std::thread> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&] {
      auto mapped = Peer(*node).Map("o", source->address());
      ASSERT_THAT(mapped, IsOk());
      EXPECT_EQ(*mapped, value);
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(source->stats().served, 1);
  EXPECT_EQ(node->stats().fetched, 1);
  // Freed at its source: gone here as well.
  ASSERT_THAT(Peer(*source).Free("o"), IsOk());
  for (int i = 0; i < 5000 && node->stats().objects > 0; ++i) usleep(2000);
  EXPECT_EQ(node->stats().objects, 0);
}

TEST(ObjectStoreTest, ASourceThatIsGoneIsAClearError) {
  auto node = StartStore();
  std::string address;
  {
    auto source = StartStore();
    address = source->address();
    EXPECT_THAT(Peer(*node).Map("none", address),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  }
  EXPECT_THAT(Peer(*node).Map("o", address),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(address)));
  EXPECT_THAT(Peer(*node).Map("o", "nowhere"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(node->stats().bytes, 0);
}

TEST(ObjectStoreTest, ItsSizeIsLimitedAndCopiesMakeWay) {
  auto source = StartStore(), node = StartStore(3'000'000);
  Peer peer(*node);
  ASSERT_THAT(Peer(*source).Put("copy", Noise(2'000'000)), IsOk());
  ASSERT_THAT(peer.Map("copy", source->address()), IsOk());
  ASSERT_THAT(peer.Put("a", Noise(2'000'000)), IsOk());
  EXPECT_EQ(node->stats().bytes, 2'000'000);
  EXPECT_THAT(
      peer.Put("b", Noise(2'000'000)),
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr("2000000 bytes"), HasSubstr("of 3000000 bytes"),
                     HasSubstr("--object_store_bytes"))));
  EXPECT_THAT(peer.Map("copy", source->address()),
              StatusIs(absl::StatusCode::kResourceExhausted));
  ASSERT_THAT(peer.Free("a"), IsOk());
  EXPECT_THAT(peer.Map("copy", source->address()), IsOk());
}

TEST(ObjectStoreTest, AJobsObjectsEndWithIt) {
  auto store = StartStore();
  Peer peer(*store);
  ASSERT_THAT(peer.Put("a", "one", "job-1"), IsOk());
  ASSERT_THAT(peer.Put("b", "two", "job-2"), IsOk());
  store->EndJob("job-1");
  EXPECT_THAT(peer.Fetch("a"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(*peer.Fetch("b"), "two");
  EXPECT_THAT(
      peer.Put("c", "three", "job-1"),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has ended")));
  EXPECT_EQ(store->stats().objects, 1);
}

TEST(ObjectStoreTest, LiarsAndStrangersLeaveNothing) {
  auto store = StartStore(1'000'000);
  Peer peer(*store);
  EXPECT_THAT(peer.Put("more", std::string(500, 'x'), "j", 100),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(peer.Put("less", std::string(500, 'x'), "j", 1000),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(peer.Put("huge", "x", "j", int64_t{1} << 62),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(peer.Put("", "x"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(peer.Put(std::string(100'000, 'i'), "x"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  Peer stranger(*store, "wrong");
  EXPECT_THAT(stranger.Put("s", "x"),
              StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(stranger.Fetch("s"),
              StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(stranger.Map("s", store->address()),
              StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(stranger.Free("s"), StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_EQ(store->stats().objects, 0);
  EXPECT_EQ(store->stats().bytes, 0);
  EXPECT_THAT(peer.Put("fits", std::string(900'000, 'x')), IsOk());
}

TEST(ObjectTableTest, AnObjectFreedWhileItComesDoesNotStay) {
  ObjectTable table(1000, 10);
  auto incoming = table.Begin("o", "j", 4, false);
  ASSERT_THAT(incoming, IsOk());
  EXPECT_THAT(table.Begin("o", "j", 4, false),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(table.bytes(), 4);
  ASSERT_THAT(ObjectTable::Append(incoming->get(), "data"), IsOk());
  table.Free({"o"});
  EXPECT_THAT(table.Finish(*std::move(incoming)),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(table.bytes(), 0);
  EXPECT_EQ(table.objects(), 0);
}

TEST(MemoryFileTest, OnlySealedFilesOfTheRightSizeAreMapped) {
  auto file = MemoryFile::Create();
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT((*file)->Append("some bytes"), IsOk());
  EXPECT_THAT(MapFile((*file)->path(), 10),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_THAT((*file)->Seal(), IsOk());
  EXPECT_THAT(MapFile((*file)->path(), 11),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE((*file)->Append("x").ok());
  auto mapped = MapFile((*file)->path(), 10);
  ASSERT_THAT(mapped, IsOk());
  EXPECT_EQ(*mapped, "some bytes");
  EXPECT_THAT(MapFile("/proc/self/fd/9999", 1),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace miniray
