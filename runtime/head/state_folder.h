// The folder of a head: its databases, packages and saved actor states, and
// what a head that is started again there must know.

#ifndef MINIRAY_RUNTIME_HEAD_STATE_FOLDER_H_
#define MINIRAY_RUNTIME_HEAD_STATE_FOLDER_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/files.h"

namespace miniray {

// In the folder, written by who starts heads: the flags that the next one there
// is to have as well. Goes with the cluster.
inline constexpr char kHeadFlagsFile[] = "flags";

// A cluster ends in good order (Finish) or is gone on with by the next head.
// Not thread-safe.
class StateFolder {
 public:
  // What a head that was killed has left.
  struct Remembered {
    std::string token;  // May be empty.
    int port = 0;
    // The IP address it listened on. Empty: an earlier version wrote this, and
    // host and tls_dir are not known.
    std::string host;
    std::string tls_dir;  // Absolute path; empty: no TLS.
  };

  // Errors: NOT_FOUND, nothing to go on with.
  static absl::StatusOr<Remembered> Recall(const std::string& path);

  // Makes the folder if needed and takes it for this process. What a finished
  // cluster left is removed, except for packages. Errors: FAILED_PRECONDITION,
  // another head uses it.
  static absl::StatusOr<std::unique_ptr<StateFolder>> Open(
      const std::string& path);

  // What was made where nothing was before goes again, unless it was
  // remembered.
  ~StateFolder();

  // True if the folder is in use by a living process.
  static bool InUse(const std::string& path);

  // From here on there is a cluster to go on with.
  absl::Status Remember(const Remembered& what);
  // Takes Remember back: the head could not be started after all. Does nothing
  // to a cluster that was there before.
  void Forget() { remembered_ = false; }
  // The next head here begins a new cluster.
  absl::Status Finish();

  // Both end the cluster of a head that was killed, from another process; the
  // second removes the folder, too. Errors: FAILED_PRECONDITION, a head uses
  // it.
  static absl::Status Finish(const std::string& path);
  static absl::Status Remove(const std::string& path);

  // An earlier head had its database here, and did not finish.
  bool has_cluster() const { return has_cluster_; }
  const std::string& path() const { return path_; }
  std::string packages() const { return path_ + "/packages"; }
  std::string states() const { return path_ + "/states"; }
  std::string runs() const { return path_ + "/runs.db"; }

 private:
  StateFolder(std::string path, ScopedFd lock, bool has_cluster, bool is_new,
              bool made_folder)
      : path_(std::move(path)),
        lock_(std::move(lock)),
        has_cluster_(has_cluster),
        is_new_(is_new),
        made_folder_(made_folder) {}

  const std::string path_;
  const ScopedFd lock_;
  const bool has_cluster_;
  const bool is_new_;  // Neither a cluster nor a database was there.
  const bool made_folder_;
  bool remembered_ = false;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_STATE_FOLDER_H_
