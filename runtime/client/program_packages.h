// This program and its plug-ins as packages: what the processes of its actors
// are started from.

#ifndef MINIRAY_RUNTIME_CLIENT_PROGRAM_PACKAGES_H_
#define MINIRAY_RUNTIME_CLIENT_PROGRAM_PACKAGES_H_

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/cluster.pb.h"
#include "runtime/client/head_requests.h"

namespace miniray {
namespace internal {

// Thread-safe.
class ProgramPackages {
 public:
  // `head` outlives this.
  explicit ProgramPackages(HeadRequests* head) : head_(head) {}

  // Names the program's package and its plug-ins in `spec`. The first time it
  // sends the head what that lacks of them.
  absl::Status AddTo(v1::ActorSpec* spec) ABSL_LOCKS_EXCLUDED(mu_);

  // Sends the head the program that `spec` names, if it is no longer there.
  absl::Status SendAgain(const v1::ActorSpec& spec);

  // The program's file name, as it was when this was first asked. Errors: see
  // ExecutablePath.
  absl::StatusOr<std::string> ProgramName() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::StatusOr<std::string> Name() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Upload(const std::string& path, const std::string& what,
                      const std::string& id);

  HeadRequests* const head_;

  absl::Mutex mu_;
  std::string name_ ABSL_GUARDED_BY(mu_);
  std::string package_id_ ABSL_GUARDED_BY(mu_);
  // Of plug-ins that this head has been sent, by path.
  std::map<std::string, std::string> plugin_ids_ ABSL_GUARDED_BY(mu_);
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_PROGRAM_PACKAGES_H_
