#include "runtime/head/head_streams.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "runtime/head/stream_link.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace {

// One worker daemon's stream. gRPC owns the reactor until OnDone; ClusterState
// holds the link, which outlives it.
class NodeStream
    : public grpc::ServerBidiReactor<v1::NodeMessage, v1::NodeCommand> {
 public:
  class Link : public NodeLink {
   public:
    explicit Link(NodeStream* stream) : out(stream) {}
    void Send(v1::NodeCommand command) override {
      out.Push(std::move(command));
    }
    StreamLink<NodeStream, v1::NodeCommand> out;
  };

  NodeStream(ClusterState* state, LogRelay* logs, CallRecordRing* calls)
      : state_(state),
        logs_(logs),
        calls_(calls),
        link_(std::make_shared<Link>(this)) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      logs_->NodeGone(link_.get());
      if (!node_id_.empty()) state_->NodeDisconnected(node_id_, link_.get());
      return link_->out.End(grpc::Status::OK);
    }
    if (message_.has_register_node()) {
      const absl::Status status =
          state_->RegisterNode(message_.register_node(), link_);
      if (!status.ok()) return link_->out.End(ToGrpcStatus(status));
      node_id_ = message_.register_node().node_id();
    } else if (node_id_.empty()) {
      return link_->out.End(
          grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                       "the first message must be register_node"));
    } else if (message_.has_actor_started()) {
      state_->ActorStarted(node_id_, message_.actor_started());
    } else if (message_.has_actor_exited()) {
      state_->ActorExited(node_id_, message_.actor_exited());
    } else if (message_.has_output()) {
      state_->Output(std::move(*message_.mutable_output()));
    } else if (message_.has_job_started()) {
      state_->JobStarted(node_id_, message_.job_started());
    } else if (message_.has_job_exited()) {
      state_->JobExited(node_id_, message_.job_exited());
    } else if (message_.has_log_chunk()) {
      logs_->Chunk(link_.get(), std::move(*message_.mutable_log_chunk()));
    } else if (message_.has_call_records()) {
      calls_->Add(node_id_, std::move(*message_.mutable_call_records()));
    } else if (message_.has_stats()) {
      state_->NodeStats(node_id_, message_.stats());
    } else if (message_.has_stopping()) {
      state_->NodeStopping(node_id_);
    } else if (message_.has_leaving()) {
      // Nothing more is read: what was queued ends the stream, or OnCancel,
      // which may have come already.
      left_ = true;
      state_->NodeLeft(node_id_);
      logs_->NodeGone(link_.get());
      if (cancelled_) return link_->out.End(grpc::Status::CANCELLED);
      return link_->out.End(grpc::Status::OK, /*drain=*/true);
    }
    StartRead(&message_);
  }

  void OnCancel() override {
    cancelled_ = true;
    if (left_) link_->out.End(grpc::Status::CANCELLED);
  }

  void OnWriteDone(bool ok) override { link_->out.Written(ok); }
  void OnDone() override { delete this; }

 private:
  ClusterState* const state_;
  LogRelay* const logs_;
  CallRecordRing* const calls_;
  const std::shared_ptr<Link> link_;
  v1::NodeMessage message_;
  std::string node_id_;
  std::atomic<bool> left_ = false;
  std::atomic<bool> cancelled_ = false;
};

// Reads and answers in turn: one operation at a time.
class LeaseStream : public grpc::ServerBidiReactor<v1::RenewLeaseRequest,
                                                   v1::RenewLeaseResponse> {
 public:
  explicit LeaseStream(ClusterState* state) : state_(state) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    const absl::Status status = state_->RenewLease(
        request_.node_id(), request_.has_clock() ? &request_.clock() : nullptr);
    if (!status.ok()) return Finish(ToGrpcStatus(status));
    response_.set_unix_us(absl::ToUnixMicros(absl::Now()));
    StartWrite(&response_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&request_);
  }

  void OnDone() override { delete this; }

 private:
  ClusterState* const state_;
  v1::RenewLeaseRequest request_;
  v1::RenewLeaseResponse response_;
};

class DriverStream
    : public grpc::ServerBidiReactor<v1::DriverMessage, v1::DriverEvent> {
 public:
  class Link : public DriverLink {
   public:
    explicit Link(DriverStream* stream) : out(stream) {}
    void Send(v1::DriverEvent event) override { out.Push(std::move(event)); }
    void Output(v1::ProcessOutput output) override {
      absl::MutexLock lock(&mu_);
      v1::ProcessOutput missed = OriginOf(output);
      output.set_dropped_lines(output.dropped_lines() +
                               missed_.dropped_lines());
      missed.set_dropped_lines(
          std::count(output.text().begin(), output.text().end(), '\n') +
          output.dropped_lines());
      v1::DriverEvent event;
      *event.mutable_output() = std::move(output);
      if (out.TryPush(std::move(event), kMaxOutputBytes)) {
        missed_.clear_dropped_lines();
      } else {
        // Of whichever process: the next message tells.
        missed_ = std::move(missed);
      }
    }
    void End(const absl::Status& status) override {
      TellMissed(std::numeric_limits<size_t>::max());
      out.End(ToGrpcStatus(status), /*drain=*/true);
    }
    // The driver has read: it hears what it missed even if nothing follows.
    void TellMissed() { TellMissed(kMaxOutputBytes / 2); }

    StreamLink<DriverStream, v1::DriverEvent> out;

   private:
    static constexpr size_t kMaxOutputBytes = 4 << 20;

    static v1::ProcessOutput OriginOf(const v1::ProcessOutput& output) {
      v1::ProcessOutput origin;
      origin.set_job_id(output.job_id());
      origin.set_actor_id(output.actor_id());
      origin.set_class_name(output.class_name());
      origin.set_pid(output.pid());
      origin.set_hostname(output.hostname());
      return origin;
    }
    void TellMissed(size_t max_queued_bytes) {
      absl::MutexLock lock(&mu_);
      if (missed_.dropped_lines() == 0) return;
      v1::DriverEvent event;
      *event.mutable_output() = missed_;
      if (out.TryPush(std::move(event), max_queued_bytes)) {
        missed_.clear_dropped_lines();
      }
    }

    absl::Mutex mu_;
    // Lines that found no room since the driver was told last, as those of the
    // process whose lines were the last of them.
    v1::ProcessOutput missed_ ABSL_GUARDED_BY(mu_);
  };

  explicit DriverStream(ClusterState* state)
      : state_(state), link_(std::make_shared<Link>(this)) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (!job_id_.empty()) state_->DriverDisconnected(job_id_, link_.get());
      return link_->out.End(grpc::Status::OK);
    }
    if (message_.has_register_driver() && job_id_.empty() &&
        !message_.register_driver().job_id().empty()) {
      const absl::Status status = state_->RegisterDriver(
          message_.register_driver(), link_.get(), link_);
      if (!status.ok()) return link_->out.End(ToGrpcStatus(status));
      job_id_ = message_.register_driver().job_id();
    } else if (message_.has_leaving() && !job_id_.empty()) {
      // Nothing more is read: its end, or OnCancel, ends the stream. The latter
      // may have come already.
      left_ = true;
      state_->DriverLeft(job_id_, link_.get());
      if (cancelled_) link_->out.End(grpc::Status::CANCELLED);
      return;
    }
    StartRead(&message_);
  }

  void OnCancel() override {
    cancelled_ = true;
    if (left_) link_->out.End(grpc::Status::CANCELLED);
  }

  void OnWriteDone(bool ok) override {
    link_->out.Written(ok);
    if (ok) link_->TellMissed();
  }
  void OnDone() override { delete this; }

 private:
  ClusterState* const state_;
  const std::shared_ptr<Link> link_;
  v1::DriverMessage message_;
  std::string job_id_;
  std::atomic<bool> left_ = false;
  std::atomic<bool> cancelled_ = false;
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
      return End(status);
    }
    if (writer_ == nullptr) {
      auto writer = packages_->Write(chunk_.package_id());
      if (!writer.ok()) return Finish(ToGrpcStatus(writer.status()));
      writer_ = *std::move(writer);
    }
    status = writer_->Append(chunk_.data());
    if (!status.ok()) return End(status);
    StartRead(&chunk_);
  }

  void OnDone() override { delete this; }

 private:
  void End(const absl::Status& status) {
    // Whoever hears that it failed finds nothing left of it.
    writer_.reset();
    Finish(ToGrpcStatus(status));
  }

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

grpc::ServerBidiReactor<v1::NodeMessage, v1::NodeCommand>* NewNodeStream(
    ClusterState* state, LogRelay* logs, CallRecordRing* calls) {
  return new NodeStream(state, logs, calls);
}

grpc::ServerBidiReactor<v1::RenewLeaseRequest, v1::RenewLeaseResponse>*
NewLeaseStream(ClusterState* state) {
  return new LeaseStream(state);
}

grpc::ServerBidiReactor<v1::DriverMessage, v1::DriverEvent>* NewDriverStream(
    ClusterState* state) {
  return new DriverStream(state);
}

grpc::ServerReadReactor<v1::PackageChunk>* NewPackageUpload(
    PackageStore* packages) {
  return new PackageUpload(packages);
}

grpc::ServerWriteReactor<v1::PackageChunk>* NewPackageDownload(
    PackageStore* packages, const std::string& package_id) {
  absl::Status status;
  if (packages->Has(package_id)) {
    ScopedFd fd(
        open(packages->PathOf(package_id).c_str(), O_RDONLY | O_CLOEXEC));
    struct stat st;
    if (fd.valid() && fstat(fd.get(), &st) == 0) {
      return new PackageDownload(std::move(fd), package_id, st.st_size);
    }
    status = ErrnoStatus(errno, "open the package");
  } else {
    status =
        absl::NotFoundError("the head does not have package " + package_id);
  }
  return new RefusedStream<grpc::ServerWriteReactor<v1::PackageChunk>>(status);
}

}  // namespace miniray
