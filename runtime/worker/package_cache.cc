#include "runtime/worker/package_cache.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace {

constexpr absl::Duration kFetchTimeout = absl::Minutes(10);

}  // namespace

PackageCache::PackageCache(std::string folder, std::string token,
                           v1::Head::Stub* stub)
    : store_(std::move(folder)), token_(std::move(token)), stub_(stub) {}

absl::StatusOr<std::string> PackageCache::Fetch(const std::string& package_id) {
  {
    absl::MutexLock lock(&mu_);
    auto free = [&] {
      mu_.AssertHeld();
      return !fetching_.contains(package_id);
    };
    mu_.Await(absl::Condition(&free));
    if (store_.Has(package_id)) return store_.PathOf(package_id);
    fetching_.insert(package_id);
  }
  const absl::Status status = Download(package_id);
  {
    absl::MutexLock lock(&mu_);
    fetching_.erase(package_id);
  }
  MR_RETURN_IF_ERROR(status);
  return store_.PathOf(package_id);
}

absl::Status PackageCache::Download(const std::string& package_id) {
  MR_ASSIGN_OR_RETURN(auto writer, store_.Write(package_id));
  grpc::ClientContext context;
  PrepareContext(&context, token_, kFetchTimeout);
  {
    absl::MutexLock lock(&mu_);
    if (closed_) return absl::CancelledError("the daemon is stopping");
    contexts_.insert(&context);
  }
  v1::GetPackageRequest request;
  request.set_package_id(package_id);
  auto reader = stub_->GetPackage(&context, request);
  v1::PackageChunk chunk;
  absl::Status status;
  while (status.ok() && reader->Read(&chunk)) {
    status = writer->Append(chunk.data());
  }
  if (!status.ok()) context.TryCancel();
  const grpc::Status finished = reader->Finish();
  {
    absl::MutexLock lock(&mu_);
    contexts_.erase(&context);
  }
  MR_RETURN_IF_ERROR(status);
  if (!finished.ok()) {
    return Annotate(FromGrpcStatus(finished), "fetch the package");
  }
  return writer->Commit();
}

void PackageCache::Close() {
  absl::MutexLock lock(&mu_);
  closed_ = true;
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
}

}  // namespace miniray
