#include "runtime/head/log_stream.h"

#include <memory>
#include <utility>

#include "runtime/head/log_reading.h"

namespace miniray {
namespace {

class LogStream : public grpc::ServerWriteReactor<v1::LogChunk>,
                  public LogOutput {
 public:
  LogStream(LogRelay* relay, ClusterState* state, ClusterState::LogPlace place)
      : reading_(std::make_shared<LogReading>(this, relay, state)) {
    reading_->Begin(std::move(place));
  }

  void OnWriteDone(bool ok) override { reading_->Written(ok); }
  void OnCancel() override { reading_->Close(); }
  void OnDone() override {
    reading_->Close();
    delete this;
  }

  // LogOutput.
  void StartWrite(const v1::LogChunk* chunk,
                  grpc::WriteOptions options) override {
    grpc::ServerWriteReactor<v1::LogChunk>::StartWrite(chunk, options);
  }
  void Finish(grpc::Status status) override {
    grpc::ServerWriteReactor<v1::LogChunk>::Finish(std::move(status));
  }

 private:
  const std::shared_ptr<LogReading> reading_;
};

}  // namespace

grpc::ServerWriteReactor<v1::LogChunk>* NewLogStream(
    LogRelay* relay, ClusterState* state, ClusterState::LogPlace place) {
  return new LogStream(relay, state, std::move(place));
}

}  // namespace miniray
