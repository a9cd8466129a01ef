// The packages that a node has: fetched from the head when first needed.

#ifndef MINIRAY_RUNTIME_WORKER_PACKAGE_CACHE_H_
#define MINIRAY_RUNTIME_WORKER_PACKAGE_CACHE_H_

#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/head.grpc.pb.h"
#include "runtime/head/package_store.h"

namespace miniray {

// Thread-safe.
class PackageCache {
 public:
  // `stub` outlives the cache.
  PackageCache(std::string folder, std::string token, v1::Head::Stub* stub);

  // Returns the path of a package's file, which is there from now on; blocks
  // while it is fetched. Errors: those of the fetch; CANCELLED once closed.
  absl::StatusOr<std::string> Fetch(const std::string& package_id);

  // Ends what is being fetched; nothing is afterwards.
  void Close();

 private:
  absl::Status Download(const std::string& package_id);

  PackageStore store_;
  const std::string token_;
  v1::Head::Stub* const stub_;

  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::set<std::string> fetching_ ABSL_GUARDED_BY(mu_);
  std::set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_PACKAGE_CACHE_H_
