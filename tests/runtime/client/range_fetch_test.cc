// RangeFetch against a source that the test plays.

#include "runtime/client/range_fetch.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/object.grpc.pb.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/channel.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace internal {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// A store with one object, through generated stubs.
class Source : public v1::ObjectStore::Service {
 public:
  explicit Source(size_t size) {
    for (int64_t i = 0; object_.size() < size; ++i) {
      absl::StrAppend(&object_, i, ",");
    }
    object_.resize(size);
    grpc::ServerBuilder builder;
    ConfigureServer(&builder);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~Source() override { server_->Shutdown(); }

  grpc::Status FetchObject(
      grpc::ServerContext*, const v1::FetchObjectRequest* request,
      grpc::ServerWriter<v1::ObjectChunk>* writer) override {
    size_t end = object_.size();
    const auto offset = static_cast<size_t>(request->offset());
    {
      absl::MutexLock lock(&mu_);
      requests_.push_back(*request);
      if (knows_length_ && request->length() > 0) {
        end = std::min(end, offset + static_cast<size_t>(request->length()));
      }
      if (breaks_ > 0) {
        --breaks_;
        end = offset + (end - offset) / 3;
      }
    }
    v1::ObjectChunk chunk;
    chunk.set_total_bytes(static_cast<int64_t>(object_.size()));
    // Chunks that fit nothing.
    constexpr size_t kChunk = 777'777;
    size_t position = offset;
    do {
      const size_t size = std::min(kChunk, end - position);
      chunk.set_data(object_.substr(position, size));
      if (!writer->Write(chunk)) break;
      position += size;
      chunk.Clear();
    } while (position < end);
    if (end < object_.size() && end < Wanted(*request)) {
      return {grpc::StatusCode::UNAVAILABLE, "the link broke"};
    }
    return grpc::Status::OK;
  }

  absl::StatusOr<absl::Cord> Fetch(int64_t size, int tries = 1) {
    MR_ASSIGN_OR_RETURN(const std::unique_ptr<RangeFetch> fetch,
                        RangeFetch::Begin({}, size));
    absl::Status status;
    for (int i = 0; i < tries; ++i) {
      status = fetch->Run({.address = address_,
                           .method = "/miniray.v1.ObjectStore/FetchObject",
                           .channels = channels_.get()},
                          absl::Now() + absl::Seconds(40));
      if (status.ok()) return std::move(*fetch).Take();
      EXPECT_LT(fetch->filled(), size);
    }
    return status;
  }

  const std::string& object() const { return object_; }
  void set_knows_length(bool knows) { knows_length_ = knows; }
  // So many calls end in the middle.
  void Break(int calls) {
    absl::MutexLock lock(&mu_);
    breaks_ = calls;
  }
  std::vector<v1::FetchObjectRequest> requests() {
    absl::MutexLock lock(&mu_);
    return requests_;
  }

 private:
  size_t Wanted(const v1::FetchObjectRequest& request) const {
    return request.length() == 0
               ? object_.size()
               : static_cast<size_t>(request.offset() + request.length());
  }

  std::string object_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  const std::shared_ptr<ChannelPool> channels_ =
      std::make_shared<ChannelPool>();
  bool knows_length_ = true;
  absl::Mutex mu_;
  std::vector<v1::FetchObjectRequest> requests_ ABSL_GUARDED_BY(mu_);
  int breaks_ ABSL_GUARDED_BY(mu_) = 0;
};

TEST(RangeFetchTest, SizesOfAllKinds) {
  for (const int64_t size :
       {int64_t{1}, int64_t{4097}, kMinRangedBytes - 1, kMinRangedBytes,
        kMinRangedBytes + 1, 3 * kMinRangedBytes + 7}) {
    Source source(static_cast<size_t>(size));
    const auto value = source.Fetch(size);
    ASSERT_THAT(value, IsOk()) << size;
    EXPECT_EQ(*value, source.object()) << size;
    EXPECT_TRUE(value->TryFlat().has_value());
    EXPECT_THAT(source.requests(), SizeIs(size < kMinRangedBytes ? 1 : 2));
  }
}

TEST(RangeFetchTest, OfNothingNothingIsAsked) {
  Source source(0);
  const auto value = source.Fetch(0);
  ASSERT_THAT(value, IsOk());
  EXPECT_TRUE(value->empty());
  EXPECT_THAT(source.requests(), SizeIs(0));
}

TEST(RangeFetchTest, ASourceThatKnowsNoRanges) {
  Source source(10'000'001);
  source.set_knows_length(false);
  const auto value = source.Fetch(10'000'001);
  ASSERT_THAT(value, IsOk());
  EXPECT_EQ(*value, source.object());
}

TEST(RangeFetchTest, WhatHasComeIsNotAskedForAgain) {
  Source source(10'000'001);
  source.Break(3);
  const auto value = source.Fetch(10'000'001, /*tries=*/4);
  ASSERT_THAT(value, IsOk());
  EXPECT_EQ(*value, source.object());
  int64_t asked = 0;
  for (const auto& request : source.requests()) asked += request.length();
  // Each break delivered a third of what was asked for.
  EXPECT_LT(asked, 2 * 10'000'001);
  source.Break(1);
  EXPECT_THAT(source.Fetch(10'000'001),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("broke")));
}

TEST(RangeFetchTest, AnObjectOfAnotherSize) {
  Source source(10'000'000);
  for (const int64_t size : {9'999'999, 10'000'001, 100}) {
    EXPECT_THAT(source.Fetch(size),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("10000000")));
  }
}

TEST(RangeFetchTest, NoMemory) {
  EXPECT_THAT(RangeFetch::Begin({}, int64_t{1} << 60).status(),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(ChannelPoolTest, ConnectionsOfTheirOwnStayAWhile) {
  int made = 0;
  const auto pool = std::make_shared<ChannelPool>([&](const std::string& to) {
    ++made;
    return MakeChannel(to);
  });
  const std::shared_ptr<grpc::Channel> calls = pool->Get("127.0.0.1:1");
  EXPECT_EQ(pool->Get("127.0.0.1:1"), calls);
  EXPECT_NE(pool->Get("127.0.0.1:1", 1), calls);
  EXPECT_NE(pool->Get("127.0.0.1:1", 2), pool->Get("127.0.0.1:1", 1));
  EXPECT_EQ(made, 3);  // Though nobody held those two.
}

}  // namespace
}  // namespace internal
}  // namespace miniray
