#include "runtime/packages/upload.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "runtime/base/files.h"
#include "runtime/base/silence.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace {

// A bound against hanging; who has less time gives a deadline. A large file on
// a slow line may take its time.
constexpr absl::Duration kSendTimeout = absl::Minutes(30);
constexpr int64_t kChunkBytes = 1 << 20;

}  // namespace

absl::Status UploadPackage(v1::Head::Stub* stub, const std::string& token,
                           const std::string& path,
                           const std::string& package_id, absl::Time deadline) {
  {
    grpc::ClientContext context;
    PrepareContext(&context, token,
                   std::min(SilenceTimeout(), deadline - absl::Now()));
    v1::HasPackageRequest request;
    request.set_package_id(package_id);
    v1::HasPackageResponse response;
    MR_RETURN_IF_ERROR(
        FromGrpcStatus(stub->HasPackage(&context, request, &response)));
    if (response.present()) return absl::OkStatus();
  }
  const ScopedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st;
  if (!fd.valid() || fstat(fd.get(), &st) != 0) {
    return ErrnoStatus(errno, absl::StrCat("open ", path));
  }
  grpc::ClientContext context;
  PrepareContext(&context, token,
                 std::min(kSendTimeout, deadline - absl::Now()));
  v1::PutPackageResponse response;
  const auto writer = stub->PutPackage(&context, &response);
  v1::PackageChunk chunk;
  chunk.set_package_id(package_id);
  chunk.set_total_bytes(st.st_size);
  while (true) {
    std::string* data = chunk.mutable_data();
    data->resize(kChunkBytes);
    const ssize_t n = read(fd.get(), data->data(), data->size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const absl::Status status = ErrnoStatus(errno, "read " + path);
      context.TryCancel();
      (void)writer->Finish();
      return status;
    }
    if (n == 0) break;
    data->resize(static_cast<size_t>(n));
    if (!writer->Write(chunk)) break;  // Finish says why.
  }
  writer->WritesDone();
  return FromGrpcStatus(writer->Finish());
}

}  // namespace miniray
