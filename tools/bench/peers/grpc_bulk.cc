#include "tools/bench/peers/grpc_bulk.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "google/protobuf/io/coded_stream.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/grpc_status.h"
#include "tools/bench/peers/grpc_server.h"
#include "tools/bench/peers/memory.h"
#include "tools/bench/peers/peer.grpc.pb.h"

namespace miniray::bench {
namespace {

constexpr char kBlockTag = 0x0a;  // Field 1, bytes.

// Data of one message of a stream.
constexpr size_t kFrameBytes = size_t{4} << 20;

// A serialized peer::Block over `bytes`, which must outlive it.
grpc::ByteBuffer BlockOver(absl::string_view bytes) {
  char header[16] = {kBlockTag};
  auto* const end =
      google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(
          bytes.size(), reinterpret_cast<uint8_t*>(header + 1));
  const grpc::Slice slices[] = {
      grpc::Slice(header,
                  static_cast<size_t>(reinterpret_cast<char*>(end) - header)),
      grpc::Slice(bytes.data(), bytes.size(), grpc::Slice::STATIC_SLICE)};
  return grpc::ByteBuffer(slices, 2);
}

grpc::ByteBuffer BlockOver(const std::vector<char>& bytes) {
  return BlockOver(absl::string_view(bytes.data(), bytes.size()));
}

// Copies the data of a serialized peer::Block of `size` data bytes to `out`.
// Slices split anywhere, the header too.
absl::Status CopyBlock(const grpc::ByteBuffer& buffer, int64_t size,
                       char* out) {
  std::vector<grpc::Slice> slices;
  const int64_t total = static_cast<int64_t>(buffer.Length());
  if (total < size || !buffer.Dump(&slices).ok()) {
    return absl::InternalError(absl::StrCat("a block of ", total, " bytes"));
  }
  int64_t position = size - total;  // Below zero: in the header.
  for (const grpc::Slice& slice : slices) {
    int64_t skip = std::min<int64_t>(std::max<int64_t>(-position, 0),
                                     static_cast<int64_t>(slice.size()));
    const auto length = static_cast<int64_t>(slice.size()) - skip;
    if (length > 0) {
      std::memcpy(out + position + skip, slice.begin() + skip,
                  static_cast<size_t>(length));
    }
    position += static_cast<int64_t>(slice.size());
  }
  return absl::OkStatus();
}
absl::Status CopyBlock(const grpc::ByteBuffer& buffer, int64_t size,
                       std::vector<char>* out) {
  out->resize(static_cast<size_t>(size));
  return CopyBlock(buffer, size, out->data());
}

// --- The server.

// Sends frames over memory that outlives it.
class FrameWriter : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  explicit FrameWriter(absl::string_view bytes) : left_(bytes) { Next(); }
  void OnWriteDone(bool ok) override {
    if (!ok) left_ = {};
    Next();
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (left_.empty()) return Finish(grpc::Status::OK);
    frame_ = BlockOver(left_.substr(0, kFrameBytes));
    left_.remove_prefix(std::min(left_.size(), kFrameBytes));
    StartWrite(&frame_);
  }
  absl::string_view left_;
  grpc::ByteBuffer frame_;
};

class StubsService : public peer::Stubs::CallbackService {
 public:
  grpc::ServerUnaryReactor* Download(grpc::CallbackServerContext* context,
                                     const peer::BlockRequest* request,
                                     peer::Block* response) override {
    FillPattern(request->bytes(), &bytes_);
    response->set_data(bytes_.data(), bytes_.size());
    return Done(context);
  }
  grpc::ServerUnaryReactor* Upload(grpc::CallbackServerContext* context,
                                   const peer::Block* request,
                                   peer::BlockReply* response) override {
    response->set_bytes(static_cast<int64_t>(request->data().size()));
    return Done(context);
  }

 private:
  static grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  std::vector<char> bytes_;
};

class SlicesService : public peer::Slices::WithRawCallbackMethod_DownloadRange<
                          peer::Slices::WithRawCallbackMethod_Download<
                              peer::Slices::WithRawCallbackMethod_Upload<
                                  peer::Slices::Service>>> {
 public:
  grpc::ServerWriteReactor<grpc::ByteBuffer>* DownloadRange(
      grpc::CallbackServerContext*, const grpc::ByteBuffer* request) override {
    peer::RangeRequest parsed;
    grpc::ByteBuffer copy = *request;
    if (!grpc::SerializationTraits<peer::RangeRequest>::Deserialize(&copy,
                                                                    &parsed)
             .ok()) {
      return new FrameWriter({});
    }
    absl::MutexLock lock(&mu_);  // Ranges come side by side.
    FillPattern(parsed.bytes(), &ranges_);
    return new FrameWriter(absl::string_view(ranges_.data(), ranges_.size())
                               .substr(static_cast<size_t>(parsed.offset()),
                                       static_cast<size_t>(parsed.length())));
  }

  grpc::ServerUnaryReactor* Download(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override {
    peer::BlockRequest parsed;
    grpc::ByteBuffer copy = *request;
    grpc::Status status =
        grpc::SerializationTraits<peer::BlockRequest>::Deserialize(&copy,
                                                                   &parsed);
    if (status.ok()) {
      FillPattern(parsed.bytes(), &bytes_);
      *response = BlockOver(bytes_);
    }
    return Done(context, status);
  }
  grpc::ServerUnaryReactor* Upload(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override {
    // The header tells the size; all senders here write it in five bytes at
    // most, before the data.
    peer::BlockReply reply;
    std::vector<grpc::Slice> slices;
    std::string header;
    if (request->Dump(&slices).ok()) {
      for (const grpc::Slice& slice : slices) {
        if (header.size() >= 11) break;
        header.append(reinterpret_cast<const char*>(slice.begin()),
                      std::min<size_t>(slice.size(), 11));
      }
    }
    google::protobuf::io::CodedInputStream stream(
        reinterpret_cast<const uint8_t*>(header.data()),
        static_cast<int>(header.size()));
    uint64_t size = 0;
    grpc::Status status = grpc::Status::OK;
    if (stream.ReadTag() != kBlockTag || !stream.ReadVarint64(&size) ||
        size > request->Length() ||
        !CopyBlock(*request, static_cast<int64_t>(size), &received_).ok()) {
      status = {grpc::StatusCode::INVALID_ARGUMENT, "not a block"};
    }
    reply.set_bytes(static_cast<int64_t>(size));
    bool own = false;
    if (status.ok()) {
      status = grpc::SerializationTraits<peer::BlockReply>::Serialize(
          reply, response, &own);
    }
    return Done(context, status);
  }

 private:
  static grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context,
                                        const grpc::Status& status) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }
  std::vector<char> bytes_;
  std::vector<char> received_;
  absl::Mutex mu_;
  std::vector<char> ranges_;
};

// --- The client.

class Client : public GrpcBulk {
 public:
  explicit Client(GrpcPeer peer)
      : peer_(std::move(peer)),
        stubs_(peer::Stubs::NewStub(peer_.channel())),
        slices_(peer_.channel()) {}

  absl::StatusOr<double> StubsDownload(int64_t bytes) override {
    peer::BlockRequest request;
    request.set_bytes(bytes);
    peer::Block response;
    const absl::Time start = absl::Now();
    grpc::ClientContext context;
    const grpc::Status status = stubs_->Download(&context, request, &response);
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    if (!status.ok()) return FromGrpcStatus(status);
    MR_RETURN_IF_ERROR(
        CheckPattern(response.data().data(), response.data().size(), bytes));
    return seconds;
  }

  absl::StatusOr<double> StubsUpload(int64_t bytes) override {
    FillPattern(bytes, &bytes_);
    peer::BlockReply response;
    const absl::Time start = absl::Now();
    peer::Block request;
    request.set_data(bytes_.data(), bytes_.size());
    grpc::ClientContext context;
    const grpc::Status status = stubs_->Upload(&context, request, &response);
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    if (!status.ok()) return FromGrpcStatus(status);
    MR_RETURN_IF_ERROR(CheckSize(response.bytes(), bytes));
    return seconds;
  }

  absl::StatusOr<double> SlicesDownload(int64_t bytes) override {
    peer::BlockRequest request;
    request.set_bytes(bytes);
    grpc::ByteBuffer to, from;
    bool own = false;
    grpc::SerializationTraits<peer::BlockRequest>::Serialize(request, &to,
                                                             &own);
    const absl::Time start = absl::Now();
    MR_RETURN_IF_ERROR(CallSlices("Download", &to, &from));
    MR_RETURN_IF_ERROR(CopyBlock(from, bytes, &received_));
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    MR_RETURN_IF_ERROR(CheckPattern(received_.data(), received_.size(), bytes));
    return seconds;
  }

  absl::StatusOr<double> RangesDownload(int64_t bytes) override {
    received_.resize(static_cast<size_t>(bytes));
    const absl::Time start = absl::Now();
    absl::Status other;
    std::thread thread([&] { other = Range(1, bytes, bytes / 2, bytes); });
    absl::Status status = Range(0, bytes, 0, bytes / 2);
    thread.join();
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    status.Update(other);
    MR_RETURN_IF_ERROR(status);
    MR_RETURN_IF_ERROR(CheckPattern(received_.data(), received_.size(), bytes));
    return seconds;
  }

  absl::StatusOr<double> SlicesUpload(int64_t bytes) override {
    FillPattern(bytes, &bytes_);
    grpc::ByteBuffer from;
    const absl::Time start = absl::Now();
    grpc::ByteBuffer to = BlockOver(bytes_);
    MR_RETURN_IF_ERROR(CallSlices("Upload", &to, &from));
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    peer::BlockReply reply;
    const grpc::Status status =
        grpc::SerializationTraits<peer::BlockReply>::Deserialize(&from, &reply);
    if (!status.ok()) return FromGrpcStatus(status);
    MR_RETURN_IF_ERROR(CheckSize(reply.bytes(), bytes));
    return seconds;
  }

 private:
  static absl::Status CheckSize(int64_t received, int64_t sent) {
    if (received == sent) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat(received, " bytes arrived instead of ", sent));
  }

  absl::Status Range(size_t connection, int64_t bytes, int64_t begin,
                     int64_t end) {
    peer::RangeRequest request;
    request.set_bytes(bytes);
    request.set_offset(begin);
    request.set_length(end - begin);
    grpc::ByteBuffer to;
    bool own = false;
    grpc::SerializationTraits<peer::RangeRequest>::Serialize(request, &to,
                                                             &own);
    grpc::ClientContext context;
    const std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> reader(
        grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(
            peer_.channels[connection].get(),
            grpc::internal::RpcMethod(
                "/miniray.bench.peer.Slices/DownloadRange",
                grpc::internal::RpcMethod::SERVER_STREAMING),
            &context, to));
    grpc::ByteBuffer frame;
    while (begin < end && reader->Read(&frame)) {
      const int64_t size =
          std::min(end - begin, static_cast<int64_t>(kFrameBytes));
      MR_RETURN_IF_ERROR(CopyBlock(frame, size, received_.data() + begin));
      frame.Clear();
      begin += size;
    }
    const absl::Status status = FromGrpcStatus(reader->Finish());
    if (!status.ok() || begin == end) return status;
    return absl::InternalError("a range ended early");
  }

  absl::Status CallSlices(const std::string& method, grpc::ByteBuffer* to,
                          grpc::ByteBuffer* from) {
    grpc::ClientContext context;
    grpc::Status status;
    absl::Notification done;
    slices_.UnaryCall(&context,
                      absl::StrCat("/miniray.bench.peer.Slices/", method),
                      grpc::StubOptions(), to, from, [&](grpc::Status result) {
                        status = std::move(result);
                        done.Notify();
                      });
    done.WaitForNotification();
    return FromGrpcStatus(status);
  }

  const GrpcPeer peer_;
  const std::unique_ptr<peer::Stubs::Stub> stubs_;
  grpc::GenericStub slices_;
  std::vector<char> bytes_;
  std::vector<char> received_;
};

}  // namespace

int ServeGrpcBulk() {
  StubsService stubs;
  SlicesService slices;
  return ServeGrpc({&stubs, &slices});
}

absl::StatusOr<std::unique_ptr<GrpcBulk>> GrpcBulk::Start() {
  MR_ASSIGN_OR_RETURN(GrpcPeer peer,
                      StartGrpcPeer(kGrpcBulkRole, /*connections=*/2));
  return std::make_unique<Client>(std::move(peer));
}

}  // namespace miniray::bench
