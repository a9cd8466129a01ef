// The folder of a head: its database, packages and saved actor states, and what
// a head that is started again there must know.

#ifndef MINIRAY_RUNTIME_HEAD_STATE_FOLDER_H_
#define MINIRAY_RUNTIME_HEAD_STATE_FOLDER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/files.h"

namespace miniray {

// A cluster ends in good order (Finish) or is gone on with by the next head.
// Not thread-safe.
class StateFolder {
 public:
  // What a head that was killed has left.
  struct Remembered {
    std::string token;  // May be empty.
    int port = 0;
  };

  // Errors: NOT_FOUND, nothing to go on with.
  static absl::StatusOr<Remembered> Recall(const std::string& path);

  // Makes the folder if needed and takes it for this process. What a finished
  // cluster left is removed, except for packages. Errors: FAILED_PRECONDITION,
  // another head uses it.
  static absl::StatusOr<std::unique_ptr<StateFolder>> Open(
      const std::string& path);

  // True if the folder is in use by a living process.
  static bool InUse(const std::string& path);

  absl::Status Remember(const Remembered& what);
  // The next head here begins a new cluster.
  absl::Status Finish();
  // The same, from another process, for a head that was killed.
  static absl::Status Finish(const std::string& path);

  // An earlier head had its database here, and did not finish.
  bool has_cluster() const { return has_cluster_; }
  const std::string& path() const { return path_; }
  std::string packages() const { return path_ + "/packages"; }
  std::string states() const { return path_ + "/states"; }

 private:
  StateFolder(std::string path, ScopedFd lock, bool has_cluster)
      : path_(std::move(path)),
        lock_(std::move(lock)),
        has_cluster_(has_cluster) {}

  const std::string path_;
  const ScopedFd lock_;
  const bool has_cluster_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_STATE_FOLDER_H_
