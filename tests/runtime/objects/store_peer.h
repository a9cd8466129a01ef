// What a client of object stores does, for tests.

#ifndef MINIRAY_TESTS_RUNTIME_OBJECTS_STORE_PEER_H_
#define MINIRAY_TESTS_RUNTIME_OBJECTS_STORE_PEER_H_

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/object.grpc.pb.h"
#include "runtime/objects/memory_file.h"
#include "runtime/objects/object_store.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {

// With the token "secret", unless there is one.
inline std::unique_ptr<ObjectStore> StartStore(ObjectStore::Options options) {
  // gRPC 1.51 ends with its last object, and now and then that takes it 10 s.
  static auto* const forever =
      new std::shared_ptr<grpc::Channel>(MakeChannel("127.0.0.1:1"));
  EXPECT_NE(*forever, nullptr);
  if (options.token.empty()) options.token = "secret";
  auto store = ObjectStore::Start(options);
  EXPECT_THAT(store, IsOk());
  return *std::move(store);
}

inline std::unique_ptr<ObjectStore> StartStore(int64_t max_bytes = 1 << 28) {
  return StartStore({.max_bytes = max_bytes});
}

// Uses the generated stubs, as any other program would.
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

  absl::StatusOr<std::string> Fetch(const std::string& id,
                                    v1::FetchObjectRequest request = {}) {
    grpc::ClientContext context;
    PrepareContext(&context, token_, absl::Seconds(30));
    request.set_object_id(id);
    auto reader = stub_->FetchObject(&context, request);
    std::string value;
    v1::ObjectChunk chunk;
    while (reader->Read(&chunk)) value += chunk.data();
    const absl::Status status = FromGrpcStatus(reader->Finish());
    if (!status.ok()) return status;
    return value;
  }

  absl::Status Adopt(const std::string& id, const v1::SharedFile& file,
                     const std::string& owner = "") {
    grpc::ClientContext context;
    PrepareContext(&context, token_, absl::Seconds(30));
    v1::AdoptObjectRequest request;
    request.set_object_id(id);
    request.set_job_id("job-1");
    request.set_owner(owner);
    *request.mutable_file() = file;
    v1::PutObjectResponse response;
    return FromGrpcStatus(stub_->AdoptObject(&context, request, &response));
  }

  absl::StatusOr<v1::SharedFile> Locate(const std::string& id,
                                        const std::string& source,
                                        const std::string& actor_id = "") {
    grpc::ClientContext context;
    PrepareContext(&context, token_, absl::Seconds(30));
    v1::LocateObjectRequest request;
    request.set_object_id(id);
    request.set_source_address(source);
    request.set_actor_id(actor_id);
    request.set_job_id("job-1");
    request.set_machine(MachineId());
    v1::LocateObjectResponse response;
    const absl::Status status =
        FromGrpcStatus(stub_->LocateObject(&context, request, &response));
    if (!status.ok()) return status;
    return response.file();
  }

  absl::StatusOr<absl::Cord> Map(const std::string& id,
                                 const std::string& source,
                                 const std::string& actor_id = "") {
    const absl::StatusOr<v1::SharedFile> file = Locate(id, source, actor_id);
    if (!file.ok()) return file.status();
    return MapFile(*file);
  }

  // Sets `missing`, if not null, to the ids that were freed before.
  absl::Status Hold(const v1::ObjectHolder& holder,
                    const std::vector<std::string>& ids,
                    const std::string& source,
                    std::vector<std::string>* missing = nullptr) {
    grpc::ClientContext context;
    PrepareContext(&context, token_, absl::Seconds(30));
    v1::HoldObjectsRequest request;
    *request.mutable_holder() = holder;
    for (const std::string& id : ids) {
      v1::ObjectClaim* const claim = request.add_claims();
      claim->set_object_id(id);
      claim->set_turn(1);
      claim->set_source_address(source);
    }
    v1::HoldObjectsResponse response;
    const absl::Status status =
        FromGrpcStatus(stub_->HoldObjects(&context, request, &response));
    if (missing != nullptr) {
      *missing = {response.missing_ids().begin(), response.missing_ids().end()};
    }
    return status;
  }

  absl::Status Release(const v1::ObjectHolder& holder, const std::string& id,
                       int64_t turn = 1) {
    grpc::ClientContext context;
    PrepareContext(&context, token_, absl::Seconds(30));
    v1::ReleaseObjectsRequest request;
    *request.mutable_holder() = holder;
    request.add_claims()->set_object_id(id);
    request.mutable_claims(0)->set_turn(turn);
    v1::ReleaseObjectsResponse response;
    return FromGrpcStatus(stub_->ReleaseObjects(&context, request, &response));
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

// A process, as in v1.ObjectHolder.
inline v1::ObjectHolder Process(const std::string& owner,
                                const std::string& job = "job-1") {
  v1::ObjectHolder holder;
  holder.set_owner(owner);
  holder.set_job_id(job);
  return holder;
}

inline std::string Noise(size_t size, unsigned seed = 7) {
  std::mt19937 random(seed);
  std::string text(size, 0);
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_OBJECTS_STORE_PEER_H_
