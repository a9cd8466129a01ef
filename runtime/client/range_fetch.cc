#include "runtime/client/range_fetch.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "runtime/base/copy.h"
#include "runtime/objects/chunk_stream.h"
#include "runtime/rpc/channel.h"
#include "runtime/shm/warm_memory.h"

namespace miniray {
namespace internal {
namespace {

// More bring nothing: two keep two cores busy at both ends. None is that of
// calls, which neither wait behind what is large, nor have their threads take
// part in receiving it.
constexpr int kConnections = 2;

}  // namespace

absl::StatusOr<std::unique_ptr<RangeFetch>> RangeFetch::Begin(
    v1::FetchObjectRequest request, int64_t size) {
  const auto bytes = static_cast<size_t>(size);
  std::shared_ptr<char> memory = AllocateWarm(bytes);
  if (memory == nullptr) {
    memory = std::shared_ptr<char>(new (std::nothrow) char[bytes],
                                   std::default_delete<char[]>());
  }
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for an object of ", size, " bytes"));
  }
  return std::unique_ptr<RangeFetch>(
      new RangeFetch(std::move(request), std::move(memory), size));
}

RangeFetch::RangeFetch(v1::FetchObjectRequest request,
                       std::shared_ptr<char> memory, int64_t size)
    : request_(std::move(request)), memory_(std::move(memory)), size_(size) {
  const int64_t count = size >= kMinRangedBytes ? kConnections : 1;
  int64_t begin = 0;
  for (int64_t i = 1; i <= count; ++i) {
    const int64_t end = size / count * i + (i == count ? size % count : 0);
    ranges_.push_back({.filled = begin, .end = end});
    begin = end;
  }
}

absl::Status RangeFetch::Run(const Source& source, absl::Time deadline) {
  std::vector<absl::Status> statuses(ranges_.size());
  std::vector<std::thread> threads;
  auto run = [&](size_t i) {
    statuses[i] = RunRange(source, static_cast<int>(i), deadline, &ranges_[i]);
  };
  for (size_t i = 1; i < ranges_.size(); ++i) {
    if (ranges_[i].filled < ranges_[i].end) threads.emplace_back(run, i);
  }
  if (ranges_[0].filled < ranges_[0].end) run(0);
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RangeFetch::RunRange(const Source& source, int connection,
                                  absl::Time deadline, Range* range) const {
  const std::shared_ptr<grpc::Channel> channel =
      source.channels->Get(source.address, connection + 1);
  grpc::ClientContext context;
  AddToken(&context, source.token);
  if (deadline != absl::InfiniteFuture()) {
    context.set_deadline(absl::ToChronoTime(deadline));
  }
  v1::FetchObjectRequest request = request_;
  request.set_offset(range->filled);
  request.set_length(range->end - range->filled);
  ChunkReader reader(channel.get(), source.method, &context, request);
  Chunk chunk;
  bool first = true;
  while (range->filled < range->end && reader.Read(&chunk)) {
    if (std::exchange(first, false) && chunk.total_bytes != size_) {
      context.TryCancel();
      reader.Finish().IgnoreError();
      return absl::DataLossError(
          absl::StrCat("the object ", request.object_id(), " has ", size_,
                       " bytes, but the source has ", chunk.total_bytes));
    }
    for (absl::string_view part : chunk.data.Chunks()) {
      const size_t size = std::min(
          part.size(), static_cast<size_t>(range->end - range->filled));
      char* const target = memory_.get() + range->filled;
      if (size_ >= kMinRangedBytes) {
        CopyPastCache(target, part.data(), size);
      } else {
        std::memcpy(target, part.data(), size);
      }
      range->filled += static_cast<int64_t>(size);
    }
    chunk.data.Clear();
  }
  if (range->filled == range->end) {
    // Nothing else is of interest; an older source would go on.
    context.TryCancel();
    reader.Finish().IgnoreError();
    return absl::OkStatus();
  }
  const absl::Status status = reader.Finish();
  if (!status.ok()) return status;
  return absl::DataLossError(absl::StrCat("the object ", request.object_id(),
                                          " ended at byte ", range->filled,
                                          " of ", size_));
}

int64_t RangeFetch::filled() const {
  int64_t bytes = size_;
  for (const Range& range : ranges_) bytes -= range.end - range.filled;
  return bytes;
}

absl::Cord RangeFetch::Take() && {
  const absl::string_view bytes(memory_.get(), static_cast<size_t>(size_));
  if (bytes.empty()) return {};
  return absl::MakeCordFromExternal(bytes, [memory = memory_] {});
}

}  // namespace internal
}  // namespace miniray
