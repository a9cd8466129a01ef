// The packages that a node has: fetched from the head when first needed, the
// least recently used ones removed when they take too much room.

#ifndef MINIRAY_RUNTIME_WORKER_PACKAGE_CACHE_H_
#define MINIRAY_RUNTIME_WORKER_PACKAGE_CACHE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/head.grpc.pb.h"
#include "runtime/packages/package_store.h"

namespace miniray {

// Thread-safe.
class PackageCache {
 public:
  struct Options {
    std::string folder;
    std::string token;
    // What is in use stays, also beyond it.
    int64_t max_bytes = int64_t{10} << 30;
    // Of one package.
    absl::Duration fetch_timeout = absl::Minutes(10);
  };
  // A package's file, which stays where it is while the use is held.
  struct Package {
    std::string path;
    std::shared_ptr<const void> use;
  };

  // `stub` outlives the cache.
  PackageCache(Options options, v1::Head::Stub* stub);

  // Returns a package; blocks while it is fetched. Errors: those of the fetch;
  // CANCELLED once closed.
  absl::StatusOr<Package> Fetch(const std::string& package_id);

  // Ends what is being fetched; nothing is afterwards.
  void Close();

 private:
  struct Entry {
    int64_t bytes = 0;
    uint64_t last_use = 0;  // Counts up.
    std::weak_ptr<const void> use;
  };

  // damaged: what came last was.
  absl::Status Download(const std::string& package_id, bool damaged);
  Package Use(const std::string& package_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  PackageStore store_;
  v1::Head::Stub* const stub_;

  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t uses_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> fetching_ ABSL_GUARDED_BY(mu_);
  std::set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_PACKAGE_CACHE_H_
