// Packages (executables of drivers) on disk, named by the SHA-256 of their
// bytes.

#ifndef MINIRAY_RUNTIME_PACKAGES_PACKAGE_STORE_H_
#define MINIRAY_RUNTIME_PACKAGES_PACKAGE_STORE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace miniray {

// Thread-safe; several processes may share the folder.
class PackageStore {
 public:
  // Writes one package; what is not committed is removed. Not thread-safe.
  class Writer {
   public:
    ~Writer();
    absl::Status Append(absl::string_view bytes);
    // Checks the hash and makes the package visible. Errors: DATA_LOSS.
    absl::Status Commit();

   private:
    friend class PackageStore;
    Writer(std::string package_id, std::string temporary, std::string path,
           int fd);
    const std::string package_id_;
    const std::string temporary_;
    const std::string path_;
    int fd_;
  };

  explicit PackageStore(std::string folder) : folder_(std::move(folder)) {}

  // True for 64 lower-case hex digits: anything else is no package id, and must
  // not become part of a path.
  static bool IsValidId(absl::string_view package_id);

  bool Has(absl::string_view package_id) const;
  // The same, as of the last second: for who asks thousands of times in one.
  bool HadLately(absl::string_view package_id) const;

  struct Entry {
    std::string package_id;
    int64_t bytes = 0;
    absl::Time last_used;
  };
  // What is there, by id.
  std::vector<Entry> List() const;
  // Looks at the bytes of a package, and removes it if they do not have its
  // hash, so that it can be sent anew. Errors: DATA_LOSS, it did that.
  absl::Status Check(absl::string_view package_id) const;
  // Somebody wants the package, if it is there.
  void MarkUsed(absl::string_view package_id) const;

  // Where the package is, or would be.
  std::string PathOf(absl::string_view package_id) const;
  // Removes packages, the least recently used first, until at most `max_bytes`
  // are left. Those in `in_use` and those used since `recent` stay.
  void MakeRoom(int64_t max_bytes, const std::set<std::string>& in_use,
                absl::Time recent) const;
  // Removes what processes that are no more have not finished writing.
  // REQUIRES: nobody writes.
  void RemoveUnfinished() const;
  // Errors: INVALID_ARGUMENT, not an id; those of the file system.
  absl::StatusOr<std::unique_ptr<Writer>> Write(absl::string_view package_id);

 private:
  // One may have gone.
  void ForgetSeen() const;

  const std::string folder_;
  // The package that HadLately saw last, and when.
  mutable absl::Mutex mu_;
  mutable std::string seen_id_ ABSL_GUARDED_BY(mu_);
  mutable absl::Time seen_at_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  mutable int64_t removals_ ABSL_GUARDED_BY(mu_) = 0;
};

// Bytes of one PackageChunk message.
inline constexpr int64_t kPackageChunkBytes = 1 << 20;

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_PACKAGES_PACKAGE_STORE_H_
