#include "runtime/worker/package_cache.h"

#include <glog/logging.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/channel.h"
#include "runtime/rpc/grpc_status.h"

namespace miniray {
namespace {

// For a head that is started again right now; what waits for longer ends with
// an error, and may be started again. Internal.
constexpr absl::Duration kHeadPatience = absl::Minutes(1);
constexpr absl::Duration kRetryPeriod = absl::Milliseconds(200);

}  // namespace

PackageCache::PackageCache(Options options, v1::Head::Stub* stub)
    : options_(std::move(options)), store_(options_.folder), stub_(stub) {
  // What an earlier daemon of this session fetched.
  std::error_code error;
  for (const auto& file :
       std::filesystem::directory_iterator(options_.folder, error)) {
    const std::string id = file.path().filename().string();
    if (!PackageStore::IsValidId(id)) continue;
    absl::MutexLock lock(&mu_);
    entries_[id].bytes = static_cast<int64_t>(file.file_size(error));
  }
}

absl::StatusOr<PackageCache::Package> PackageCache::Fetch(
    const std::string& package_id) {
  {
    absl::MutexLock lock(&mu_);
    auto free = [&] {
      mu_.AssertHeld();
      return !fetching_.contains(package_id);
    };
    mu_.Await(absl::Condition(&free));
    if (store_.Has(package_id)) return Use(package_id);
    fetching_.insert(package_id);
  }
  absl::Status status = Download(package_id, /*damaged=*/false);
  // On its way, or on the head's disk, which the head then finds out.
  if (absl::IsDataLoss(status)) {
    status = Download(package_id, /*damaged=*/true);
  }
  // A head that is started again right now is no reason to give an actor up.
  const absl::Time patience = absl::Now() + kHeadPatience;
  absl::MutexLock lock(&mu_);
  while (absl::IsUnavailable(status) && absl::Now() < patience &&
         !mu_.AwaitWithTimeout(absl::Condition(&closed_), kRetryPeriod)) {
    mu_.Unlock();
    status = Download(package_id, /*damaged=*/false);
    mu_.Lock();
  }
  fetching_.erase(package_id);
  MR_RETURN_IF_ERROR(status);
  Package package = Use(package_id);
  MakeRoom();
  return package;
}

PackageCache::Package PackageCache::Use(const std::string& package_id) {
  Package package = {.path = store_.PathOf(package_id)};
  Entry& entry = entries_[package_id];
  entry.last_use = ++uses_;
  std::error_code error;
  const auto size = std::filesystem::file_size(package.path, error);
  if (!error) entry.bytes = static_cast<int64_t>(size);
  package.use = entry.use.lock();
  if (package.use == nullptr) {
    package.use = std::make_shared<const int>(0);
    entry.use = package.use;
  }
  return package;
}

void PackageCache::MakeRoom() {
  int64_t total = 0;
  for (const auto& [id, entry] : entries_) total += entry.bytes;
  while (total > options_.max_bytes) {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (!it->second.use.expired()) continue;
      if (oldest == entries_.end() ||
          it->second.last_use < oldest->second.last_use) {
        oldest = it;
      }
    }
    if (oldest == entries_.end()) return;  // All are in use.
    LOG(INFO) << "package " << oldest->first << " leaves the cache";
    unlink(store_.PathOf(oldest->first).c_str());
    total -= oldest->second.bytes;
    entries_.erase(oldest);
  }
}

absl::Status PackageCache::Download(const std::string& package_id,
                                    bool damaged) {
  MR_ASSIGN_OR_RETURN(auto writer, store_.Write(package_id));
  grpc::ClientContext context;
  PrepareContext(&context, options_.token, options_.fetch_timeout);
  context.set_wait_for_ready(true);
  {
    absl::MutexLock lock(&mu_);
    if (closed_) return absl::CancelledError("the daemon is stopping");
    contexts_.insert(&context);
  }
  v1::GetPackageRequest request;
  request.set_package_id(package_id);
  request.set_damaged(damaged);
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
  if (finished.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(absl::StrCat(
        "fetch the package: the head has not sent all of it within ",
        absl::FormatDuration(options_.fetch_timeout),
        "; is the line slow? See miniray start --fetch_timeout"));
  }
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
