// A head with its service at a port of its own, and calls to it.

#ifndef MINIRAY_TESTS_RUNTIME_HEAD_HEAD_SERVICE_TESTUTIL_H_
#define MINIRAY_TESTS_RUNTIME_HEAD_HEAD_SERVICE_TESTUTIL_H_

#include <grpcpp/grpcpp.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "proto/head.grpc.pb.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/head/head_server.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray {

class HeadServiceTest : public ::testing::Test {
 protected:
  static constexpr absl::Duration kPatience = absl::Seconds(30);
  // Two chunks and a bit.
  static constexpr size_t kPackageBytes = (2 << 20) + 7;

  using NodeStream = grpc::ClientReaderWriter<v1::NodeMessage, v1::NodeCommand>;
  using DriverStream =
      grpc::ClientReaderWriter<v1::DriverMessage, v1::DriverEvent>;

  void SetUp() override {
    package_ = std::string(kPackageBytes, '\0');
    for (size_t i = 0; i < package_.size(); ++i) {
      package_[i] = static_cast<char>(i * 2654435761u >> 13);
    }
    ASSERT_THAT(WriteFileAtomically(folder_ / "package", package_), IsOk());
    package_id_ = Sha256OfFile(folder_ / "package").value();
    StartHead({});
  }

  void StartHead(HeadServer::Options options) {
    options.token = token_;
    options.state_dir = folder_ / "head";
    auto head = HeadServer::Start(options);
    ASSERT_THAT(head, IsOk());
    head_ = *std::move(head);
    stub_ = v1::Head::NewStub(
        MakeChannel(absl::StrCat("127.0.0.1:", head_->port())));
  }

  // A call with the token `token`; empty: with none.
  std::unique_ptr<grpc::ClientContext> Context(const std::string& token) {
    auto context = std::make_unique<grpc::ClientContext>();
    PrepareContext(context.get(), token, kPatience);
    return context;
  }

  template <class Request, class Response>
  absl::Status Call(grpc::Status (v1::Head::Stub::*method)(grpc::ClientContext*,
                                                           const Request&,
                                                           Response*),
                    const Request& request, Response* response,
                    const std::string& token) {
    return FromGrpcStatus(
        (stub_.get()->*method)(Context(token).get(), request, response));
  }

  template <class Request, class Response>
  absl::Status Call(grpc::Status (v1::Head::Stub::*method)(grpc::ClientContext*,
                                                           const Request&,
                                                           Response*),
                    const Request& request, Response* response) {
    return Call(method, request, response, token_);
  }

  v1::NodeMessage Registration(const std::string& node, double cpus = 4) {
    v1::NodeMessage message;
    message.mutable_register_node()->set_node_id(node);
    (*message.mutable_register_node()
          ->mutable_total()
          ->mutable_quantity())["CPU"] = cpus;
    return message;
  }

  v1::DriverMessage Hello(const std::string& job,
                          const std::string& session = "s") {
    v1::DriverMessage message;
    message.mutable_register_driver()->set_job_id(job);
    message.mutable_register_driver()->set_session_id(session);
    return message;
  }

  v1::CreateActorRequest Creation(const std::string& actor) {
    v1::CreateActorRequest request;
    request.mutable_spec()->set_actor_id(actor);
    request.mutable_spec()->set_class_name("Counter");
    request.mutable_spec()->set_package_id(package_id_);
    request.mutable_spec()->set_job_id("job");
    return request;
  }

  // Sends `bytes` in pieces of at most 1 MiB.
  absl::Status Upload(const std::string& id, const std::string& bytes,
                      const std::string& token) {
    const auto context = Context(token);
    v1::PutPackageResponse response;
    auto writer = stub_->PutPackage(context.get(), &response);
    for (size_t at = 0; at < bytes.size(); at += 1 << 20) {
      v1::PackageChunk chunk;
      if (at == 0) chunk.set_package_id(id);
      chunk.set_data(bytes.substr(at, 1 << 20));
      if (!writer->Write(chunk)) break;
    }
    writer->WritesDone();
    return FromGrpcStatus(writer->Finish());
  }

  // *bytes: all that came.
  absl::Status Download(const std::string& id, const std::string& token,
                        std::string* bytes) {
    const auto context = Context(token);
    v1::GetPackageRequest request;
    request.set_package_id(id);
    auto reader = stub_->GetPackage(context.get(), request);
    v1::PackageChunk chunk;
    while (reader->Read(&chunk)) {
      EXPECT_LE(chunk.data().size(), size_t{1} << 20);
      EXPECT_EQ(chunk.total_bytes(), static_cast<int64_t>(kPackageBytes));
      *bytes += chunk.data();
    }
    return FromGrpcStatus(reader->Finish());
  }

  // Waits until the head's tables satisfy `condition`.
  template <class Condition>
  bool Eventually(Condition condition) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (!condition(head_->GetState())) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(2));
    }
    return true;
  }

  std::vector<std::string> Packages() {
    std::vector<std::string> names;
    std::error_code error;
    for (std::filesystem::directory_iterator
             file(folder_ / "head/packages", error),
         end;
         !error && file != end; file.increment(error)) {
      names.push_back(file->path().filename().string());
    }
    return names;
  }

  const TempFolder folder_;
  const std::string token_ = NewToken();
  std::string package_;
  std::string package_id_;
  std::unique_ptr<HeadServer> head_;
  std::unique_ptr<v1::Head::Stub> stub_;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_HEAD_HEAD_SERVICE_TESTUTIL_H_
