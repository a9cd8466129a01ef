#include "runtime/head/head_service.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <memory>
#include <optional>

#include "absl/synchronization/mutex.h"
#include "runtime/base/files.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace {

// A refused stream: finishes at once.
template <class Base>
class Refused : public Base {
 public:
  explicit Refused(const absl::Status& status) {
    this->Finish(ToGrpcStatus(status));
  }
  void OnDone() override { delete this; }
};

grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context,
                                 const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

// One worker daemon's stream. gRPC owns the reactor until OnDone; ClusterState
// holds the link, which outlives it.
class NodeStream
    : public grpc::ServerBidiReactor<v1::NodeMessage, v1::NodeCommand> {
 public:
  class Link : public NodeLink {
   public:
    explicit Link(NodeStream* stream) : stream_(stream) {}

    void Send(v1::NodeCommand command) override {
      absl::MutexLock lock(&mu_);
      if (stream_ == nullptr) return;
      queue_.push_back(std::move(command));
      if (queue_.size() == 1) stream_->StartWrite(&queue_.front());
    }

    void Written(bool ok) {
      absl::MutexLock lock(&mu_);
      if (stream_ == nullptr || !ok) return;
      queue_.pop_front();
      if (!queue_.empty()) stream_->StartWrite(&queue_.front());
    }

    // No write starts after it: call it before Finish.
    void Close() {
      absl::MutexLock lock(&mu_);
      stream_ = nullptr;
    }

   private:
    absl::Mutex mu_;
    NodeStream* stream_ ABSL_GUARDED_BY(mu_);
    // The front one is on its way.
    std::deque<v1::NodeCommand> queue_ ABSL_GUARDED_BY(mu_);
  };

  explicit NodeStream(ClusterState* state)
      : state_(state), link_(std::make_shared<Link>(this)) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (!node_id_.empty()) state_->NodeDisconnected(node_id_, link_.get());
      return End(grpc::Status::OK);
    }
    if (message_.has_register_node()) {
      absl::Status status =
          state_->RegisterNode(message_.register_node(), link_);
      if (!status.ok()) return End(ToGrpcStatus(status));
      node_id_ = message_.register_node().node_id();
    } else if (node_id_.empty()) {
      return End(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                              "the first message must be register_node"));
    } else if (message_.has_actor_started()) {
      state_->ActorStarted(node_id_, message_.actor_started());
    } else if (message_.has_actor_exited()) {
      state_->ActorExited(node_id_, message_.actor_exited());
    } else if (message_.has_leaving()) {
      state_->NodeLeft(node_id_);
    }
    StartRead(&message_);
  }

  void OnWriteDone(bool ok) override { link_->Written(ok); }
  void OnDone() override { delete this; }

 private:
  void End(const grpc::Status& status) {
    link_->Close();
    Finish(status);
  }

  ClusterState* const state_;
  const std::shared_ptr<Link> link_;
  v1::NodeMessage message_;
  std::string node_id_;
};

class DriverStream
    : public grpc::ServerBidiReactor<v1::DriverMessage, v1::DriverEvent> {
 public:
  explicit DriverStream(ClusterState* state) : state_(state) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (!job_id_.empty()) state_->DriverDisconnected(job_id_, this);
      return Finish(grpc::Status::OK);
    }
    if (message_.has_register_driver() && job_id_.empty() &&
        !message_.register_driver().job_id().empty()) {
      absl::Status status =
          state_->RegisterDriver(message_.register_driver(), this);
      if (!status.ok()) return Finish(ToGrpcStatus(status));
      job_id_ = message_.register_driver().job_id();
      event_.mutable_registered();
      StartWrite(&event_);
    } else if (message_.has_leaving() && !job_id_.empty()) {
      state_->DriverLeft(job_id_, this);
      return Finish(grpc::Status::OK);
    }
    StartRead(&message_);
  }

  void OnDone() override { delete this; }

 private:
  ClusterState* const state_;
  v1::DriverMessage message_;
  v1::DriverEvent event_;
  std::string job_id_;
};

class PackageUpload : public grpc::ServerReadReactor<v1::PackageChunk> {
 public:
  explicit PackageUpload(PackageStore* packages) : packages_(packages) {
    StartRead(&chunk_);
  }

  void OnReadDone(bool ok) override {
    absl::Status status;
    if (!ok) {
      status = writer_ == nullptr ? absl::InvalidArgumentError("no package")
                                  : writer_->Commit();
      return Finish(ToGrpcStatus(status));
    }
    if (writer_ == nullptr) {
      auto writer = packages_->Write(chunk_.package_id());
      if (!writer.ok()) return Finish(ToGrpcStatus(writer.status()));
      writer_ = *std::move(writer);
    }
    status = writer_->Append(chunk_.data());
    if (!status.ok()) return Finish(ToGrpcStatus(status));
    StartRead(&chunk_);
  }

  void OnDone() override { delete this; }

 private:
  PackageStore* const packages_;
  std::unique_ptr<PackageStore::Writer> writer_;
  v1::PackageChunk chunk_;
};

class PackageDownload : public grpc::ServerWriteReactor<v1::PackageChunk> {
 public:
  PackageDownload(ScopedFd fd, const std::string& package_id, int64_t total)
      : fd_(std::move(fd)) {
    chunk_.set_package_id(package_id);
    chunk_.set_total_bytes(total);
    Next();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      return Finish(
          grpc::Status(grpc::StatusCode::UNAVAILABLE, "the node went away"));
    }
    Next();
  }

  void OnDone() override { delete this; }

 private:
  void Next() {
    std::string* data = chunk_.mutable_data();
    data->resize(kPackageChunkBytes);
    ssize_t n;
    do {
      n = read(fd_.get(), data->data(), data->size());
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
      return Finish(ToGrpcStatus(ErrnoStatus(errno, "read the package")));
    }
    if (n == 0) return Finish(grpc::Status::OK);
    data->resize(static_cast<size_t>(n));
    StartWrite(&chunk_);
  }

  ScopedFd fd_;
  v1::PackageChunk chunk_;
};

}  // namespace

grpc::ServerBidiReactor<v1::NodeMessage, v1::NodeCommand>*
HeadService::AttachNode(grpc::CallbackServerContext* context) {
  if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
    return new Refused<
        grpc::ServerBidiReactor<v1::NodeMessage, v1::NodeCommand>>(status);
  }
  return new NodeStream(state_);
}

grpc::ServerUnaryReactor* HeadService::RenewLease(
    grpc::CallbackServerContext* context, const v1::RenewLeaseRequest* request,
    v1::RenewLeaseResponse* response) {
  absl::Status status = CheckToken(*context, token_);
  if (status.ok()) status = state_->RenewLease(request->node_id());
  return Finish(context, status);
}

grpc::ServerBidiReactor<v1::DriverMessage, v1::DriverEvent>*
HeadService::AttachDriver(grpc::CallbackServerContext* context) {
  if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
    return new Refused<
        grpc::ServerBidiReactor<v1::DriverMessage, v1::DriverEvent>>(status);
  }
  return new DriverStream(state_);
}

grpc::ServerUnaryReactor* HeadService::HasPackage(
    grpc::CallbackServerContext* context, const v1::HasPackageRequest* request,
    v1::HasPackageResponse* response) {
  absl::Status status = CheckToken(*context, token_);
  if (status.ok()) response->set_present(packages_->Has(request->package_id()));
  return Finish(context, status);
}

grpc::ServerReadReactor<v1::PackageChunk>* HeadService::PutPackage(
    grpc::CallbackServerContext* context, v1::PutPackageResponse* response) {
  if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
    return new Refused<grpc::ServerReadReactor<v1::PackageChunk>>(status);
  }
  return new PackageUpload(packages_);
}

grpc::ServerWriteReactor<v1::PackageChunk>* HeadService::GetPackage(
    grpc::CallbackServerContext* context,
    const v1::GetPackageRequest* request) {
  absl::Status status = CheckToken(*context, token_);
  const std::string& id = request->package_id();
  if (status.ok() && !packages_->Has(id)) {
    status = absl::NotFoundError("the head does not have package " + id);
  }
  if (status.ok()) {
    ScopedFd fd(open(packages_->PathOf(id).c_str(), O_RDONLY | O_CLOEXEC));
    struct stat st;
    if (fd.valid() && fstat(fd.get(), &st) == 0) {
      return new PackageDownload(std::move(fd), id, st.st_size);
    }
    status = ErrnoStatus(errno, "open the package");
  }
  return new Refused<grpc::ServerWriteReactor<v1::PackageChunk>>(status);
}

grpc::ServerUnaryReactor* HeadService::CreateActor(
    grpc::CallbackServerContext* context, const v1::CreateActorRequest* request,
    v1::CreateActorResponse* response) {
  absl::Status status = CheckToken(*context, token_);
  if (status.ok() && !packages_->Has(request->spec().package_id())) {
    status = absl::FailedPreconditionError(
        "upload the package before an actor of it is created");
  }
  if (status.ok()) {
    absl::StatusOr<v1::ActorInfo> actor = state_->CreateActor(request->spec());
    status = actor.status();
    if (actor.ok()) *response->mutable_actor() = *std::move(actor);
  }
  return Finish(context, status);
}

grpc::ServerUnaryReactor* HeadService::GetActor(
    grpc::CallbackServerContext* context, const v1::GetActorRequest* request,
    v1::GetActorResponse* response) {
  if (absl::Status status = CheckToken(*context, token_); !status.ok()) {
    return Finish(context, status);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  state_->GetActor(*request,
                   [reactor, response](absl::StatusOr<v1::ActorInfo> actor) {
                     if (actor.ok()) {
                       *response->mutable_actor() = *std::move(actor);
                       reactor->Finish(grpc::Status::OK);
                     } else {
                       reactor->Finish(ToGrpcStatus(actor.status()));
                     }
                   });
  return reactor;
}

grpc::ServerUnaryReactor* HeadService::KillActor(
    grpc::CallbackServerContext* context, const v1::KillActorRequest* request,
    v1::KillActorResponse* response) {
  absl::Status status = CheckToken(*context, token_);
  if (status.ok()) {
    status = state_->KillActor(request->actor_id(), request->no_restart());
  }
  return Finish(context, status);
}

grpc::ServerUnaryReactor* HeadService::GetClusterState(
    grpc::CallbackServerContext* context,
    const v1::GetClusterStateRequest* request,
    v1::GetClusterStateResponse* response) {
  absl::Status status = CheckToken(*context, token_);
  if (status.ok()) *response = state_->Snapshot();
  return Finish(context, status);
}

}  // namespace miniray
