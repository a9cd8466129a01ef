#include "runtime/head/log_stream.h"

#include <deque>
#include <memory>
#include <utility>

#include "runtime/head/stream_link.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace {

class LogStream : public grpc::ServerWriteReactor<v1::LogChunk> {
 public:
  LogStream(LogRelay* relay, ClusterState::LogPlace place)
      : relay_(relay),
        id_(relay->NewId()),
        sink_(std::make_shared<Sink>(this)) {
    const absl::Status status = relay_->Open(id_, std::move(place.link),
                                             std::move(place.request), sink_);
    if (!status.ok()) sink_->out.End(ToGrpcStatus(status));
  }

  void OnWriteDone(bool ok) override {
    const int64_t bytes = sink_->TakeSize();
    sink_->out.Written(ok);
    if (ok) relay_->Grant(id_, bytes);
  }

  void OnCancel() override {
    relay_->Close(id_);
    sink_->out.End(grpc::Status::CANCELLED);
  }

  void OnDone() override {
    relay_->Close(id_);
    delete this;
  }

 private:
  // May outlive the stream.
  class Sink : public LogRelay::Sink {
   public:
    explicit Sink(LogStream* stream) : out(stream) {}

    void Data(std::string bytes) override {
      {
        absl::MutexLock lock(&mu_);
        sizes_.push_back(static_cast<int64_t>(bytes.size()));
      }
      v1::LogChunk chunk;
      chunk.set_data(std::move(bytes));
      out.Push(std::move(chunk));
    }
    void End(absl::Status status) override {
      out.End(ToGrpcStatus(status), /*drain=*/true);
    }

    int64_t TakeSize() {
      absl::MutexLock lock(&mu_);
      const int64_t size = sizes_.front();
      sizes_.pop_front();
      return size;
    }

    StreamLink<LogStream, v1::LogChunk> out;

   private:
    absl::Mutex mu_;
    std::deque<int64_t> sizes_ ABSL_GUARDED_BY(mu_);  // Of what is queued.
  };

  LogRelay* const relay_;
  const uint64_t id_;
  const std::shared_ptr<Sink> sink_;
};

}  // namespace

grpc::ServerWriteReactor<v1::LogChunk>* NewLogStream(
    LogRelay* relay, ClusterState::LogPlace place) {
  return new LogStream(relay, std::move(place));
}

}  // namespace miniray
