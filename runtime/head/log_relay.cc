#include "runtime/head/log_relay.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace miniray {
namespace {

v1::NodeCommand EndCommand(uint64_t id) {
  v1::NodeCommand command;
  command.mutable_end_read_log()->set_request_id(id);
  return command;
}

}  // namespace

uint64_t LogRelay::NewId() {
  absl::MutexLock lock(&mu_);
  return next_id_++;
}

absl::Status LogRelay::Open(uint64_t id, std::shared_ptr<NodeLink> link,
                            v1::ReadNodeLog request,
                            std::shared_ptr<Sink> sink) {
  absl::MutexLock lock(&mu_);
  if (readings_.size() >= kMaxReaders) {
    return absl::ResourceExhaustedError(absl::StrCat(
        kMaxReaders, " logs are being read at this moment; try again later"));
  }
  readings_[id] = {link, std::move(sink)};
  v1::NodeCommand command;
  *command.mutable_read_log() = std::move(request);
  command.mutable_read_log()->set_request_id(id);
  command.mutable_read_log()->set_window_bytes(kWindowBytes);
  link->Send(std::move(command));
  return absl::OkStatus();
}

void LogRelay::Grant(uint64_t id, int64_t bytes) {
  absl::MutexLock lock(&mu_);
  const auto it = readings_.find(id);
  if (it == readings_.end()) return;
  it->second.window += bytes;
  v1::NodeCommand command;
  command.mutable_grant_log()->set_request_id(id);
  command.mutable_grant_log()->set_bytes(bytes);
  it->second.link->Send(std::move(command));
}

void LogRelay::Close(uint64_t id) {
  absl::MutexLock lock(&mu_);
  const auto it = readings_.find(id);
  if (it == readings_.end()) return;
  it->second.link->Send(EndCommand(id));
  readings_.erase(it);
}

void LogRelay::Chunk(const NodeLink* link, v1::LogChunk chunk) {
  absl::MutexLock lock(&mu_);
  const auto it = readings_.find(chunk.request_id());
  if (it == readings_.end() || it->second.link.get() != link) return;
  Reading& reading = it->second;
  reading.window -= static_cast<int64_t>(chunk.data().size());
  if (reading.window < 0) {
    reading.link->Send(EndCommand(it->first));
    reading.sink->End(absl::InternalError("the node sent more than was asked"),
                      0);
    readings_.erase(it);
    return;
  }
  const bool last = chunk.last();
  const bool notice = !last && !chunk.error().empty();
  const absl::Status status = chunk.error().empty()
                                  ? absl::OkStatus()
                                  : absl::NotFoundError(chunk.error());
  const int32_t incarnation = chunk.incarnation();
  if (!chunk.data().empty() || notice) {
    v1::LogChunk data;
    data.mutable_data()->swap(*chunk.mutable_data());
    if (notice) data.set_error(chunk.error());
    data.set_incarnation(incarnation);
    data.set_lost_bytes(chunk.lost_bytes());
    reading.sink->Data(std::move(data));
  }
  if (!last) return;
  reading.sink->End(status, incarnation);
  readings_.erase(it);
}

void LogRelay::NodeGone(const NodeLink* link) {
  absl::MutexLock lock(&mu_);
  for (auto it = readings_.begin(); it != readings_.end();) {
    if (it->second.link.get() != link) {
      ++it;
      continue;
    }
    it->second.sink->End(
        absl::UnavailableError("the log of this process is cut off: the "
                               "connection to its node broke"),
        0);
    it = readings_.erase(it);
  }
}

}  // namespace miniray
