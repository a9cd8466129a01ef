// The object store of a node, over gRPC, with what clients and strangers send.

#include "runtime/objects/object_store.h"

#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/actor.grpc.pb.h"
#include "runtime/objects/memory_file.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/objects/store_peer.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
  // All of them have the same memory mapped.
  const auto one = Peer(*node).Locate("o", source->address());
  const auto two = Peer(*node).Locate("o", source->address());
  ASSERT_THAT(one, IsOk());
  ASSERT_THAT(two, IsOk());
  EXPECT_EQ(one->inode(), two->inode());
  EXPECT_EQ(node->stats().bytes, 20'000'000);
  EXPECT_EQ(source->stats().put_bytes, 20'000'000);
  EXPECT_EQ(source->stats().sent_bytes, 20'000'000);
  EXPECT_EQ(source->stats().mapped_bytes, 0);
  EXPECT_EQ(node->stats().fetched_bytes, 20'000'000);
  EXPECT_EQ(node->stats().mapped_bytes, 10 * 20'000'000);  // 8 readers, and 2.
  EXPECT_EQ(node->stats().put_bytes + node->stats().adopted_bytes, 0);
  // Freed at its source: gone here as well.
  ASSERT_THAT(Peer(*source).Free("o"), IsOk());
  for (int i = 0; i < 5000 && node->stats().objects > 0; ++i) usleep(2000);
  EXPECT_EQ(node->stats().objects, 0);
}

TEST(ObjectStoreTest, AFileThatAProcessHasFilledIsTakenOver) {
  auto store = StartStore();
  Peer peer(*store);
  const std::string value = Noise(5'000'000);
  auto file = *MemoryFile::Create(5'000'000);
  ASSERT_THAT(file->Append(value), IsOk());
  EXPECT_THAT(peer.Adopt("o", file->shared()),  // Its owner could change it.
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("not a sealed object")));
  ASSERT_THAT(file->Seal(), IsOk());
  v1::SharedFile elsewhere = file->shared();
  elsewhere.set_machine("another one");
  EXPECT_THAT(peer.Adopt("o", elsewhere),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  v1::SharedFile other = file->shared();
  other.set_inode(other.inode() + 1);
  EXPECT_THAT(peer.Adopt("o", other),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(store->stats().bytes, 0);
  ASSERT_THAT(peer.Adopt("o", file->shared()), IsOk());
  EXPECT_THAT(peer.Adopt("o", file->shared()), IsOk());  // Again.
  file.reset();
  EXPECT_EQ(store->stats().bytes, 5'000'000);
  EXPECT_EQ(store->stats().adopted_bytes, 5'000'000);  // Once.
  EXPECT_EQ(*peer.Fetch("o"), value);
  EXPECT_EQ(*peer.Map("o", store->address()), value);
}

TEST(ObjectStoreTest, WhatAProcessHasPutEndsWithIt) {
  auto source = StartStore(), node = StartStore();
  auto file = *MemoryFile::Create(1);
  ASSERT_THAT(file->Append("x"), IsOk());
  ASSERT_THAT(file->Seal(), IsOk());
  ASSERT_THAT(Peer(*source).Adopt("a", file->shared(), "actor.0"), IsOk());
  ASSERT_THAT(Peer(*source).Adopt("b", file->shared(), "actor.1"), IsOk());
  ASSERT_THAT(Peer(*node).Map("a", source->address()), IsOk());
  ASSERT_THAT(Peer(*node).Map("b", source->address()), IsOk());
  source->EndOwner("");  // Nobody.
  EXPECT_EQ(source->stats().objects, 2);
  source->EndOwner("actor.0");
  EXPECT_EQ(source->stats().objects, 1);
  for (int i = 0; i < 5000 && node->stats().objects > 1; ++i) usleep(2000);
  EXPECT_EQ(node->stats().objects, 1);
  EXPECT_EQ(*Peer(*source).Fetch("b"), "x");
  // What was on its way when it died.
  EXPECT_THAT(Peer(*source).Adopt("late", file->shared(), "actor.0"),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(ObjectStoreTest, CopiesDoNotOutliveTheirObjects) {
  auto node = StartStore({.check_period = absl::Milliseconds(50)});
  auto source = StartStore(), lost = StartStore();
  ASSERT_THAT(Peer(*source).Put("a", "one"), IsOk());
  ASSERT_THAT(Peer(*source).Put("b", "two", "job-2"), IsOk());
  ASSERT_THAT(Peer(*lost).Put("c", "three"), IsOk());
  ASSERT_THAT(Peer(*node).Map("a", source->address()), IsOk());
  ASSERT_THAT(Peer(*node).Map("b", source->address()), IsOk());
  ASSERT_THAT(Peer(*node).Map("c", lost->address()), IsOk());
  EXPECT_EQ(node->stats().objects, 3);
  lost.reset();
  for (int i = 0; i < 10000 && node->stats().objects > 2; ++i) usleep(2000);
  EXPECT_EQ(node->stats().objects, 2);
  source->EndJob("job-2");
  for (int i = 0; i < 10000 && node->stats().objects > 1; ++i) usleep(2000);
  EXPECT_EQ(node->stats().objects, 1);
  EXPECT_EQ(*Peer(*node).Map("a", source->address()), "one");
}

// The process of an actor that keeps the result "r".
class KeepingActor : public v1::ActorService::Service {
 public:
  KeepingActor() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }

  grpc::Status FetchObject(
      grpc::ServerContext*, const v1::FetchObjectRequest* request,
      grpc::ServerWriter<v1::ObjectChunk>* writer) override {
    EXPECT_EQ(request->actor_id(), "actor");
    if (request->object_id() == "r" && request->offset() < 0) ++checks;
    if (released || request->object_id() != "r") {
      return grpc::Status(grpc::StatusCode::NOT_FOUND, "it was released");
    }
    if (request->offset() < 0) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "an offset");
    }
    ++sent;
    v1::ObjectChunk chunk;
    chunk.set_total_bytes(6);
    chunk.set_data("result");
    writer->Write(chunk);
    return grpc::Status::OK;
  }

  const std::string& address() const { return address_; }
  std::atomic<bool> released = false;
  std::atomic<int> sent = 0;
  std::atomic<int> checks = 0;  // Whether it still keeps the result.

 private:
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

TEST(ObjectStoreTest, AResultThatAnActorKeepsIsCopiedOnceUntilItIsReleased) {
  KeepingActor actor;
  auto node = StartStore({.check_period = absl::Milliseconds(50)});
  Peer peer(*node);
  EXPECT_EQ(*peer.Map("r", actor.address(), "actor"), "result");
  EXPECT_EQ(*peer.Map("r", actor.address(), "actor"), "result");
  EXPECT_EQ(actor.sent, 1);
  EXPECT_THAT(peer.Map("other", actor.address(), "actor"),
              StatusIs(absl::StatusCode::kNotFound));
  for (int i = 0; i < 10000 && actor.checks < 3; ++i) usleep(2000);
  ASSERT_GE(actor.checks, 3);
  EXPECT_EQ(node->stats().objects, 1);
  actor.released = true;
  for (int i = 0; i < 10000 && node->stats().objects > 0; ++i) usleep(2000);
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
  EXPECT_THAT(stranger.Adopt("s", {}),
              StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_EQ(store->stats().objects, 0);
  EXPECT_EQ(store->stats().bytes, 0);
  EXPECT_THAT(peer.Put("fits", std::string(900'000, 'x')), IsOk());
}

}  // namespace
}  // namespace miniray
