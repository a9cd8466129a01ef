// Who watches the dashboard hears that something has changed.

#ifndef MINIRAY_RUNTIME_DASHBOARD_CHANGE_FEED_H_
#define MINIRAY_RUNTIME_DASHBOARD_CHANGE_FEED_H_

#include <cstdint>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace miniray {

// One thread looks, however many watch; with nobody there it does not.
// Thread-safe.
class ChangeFeed {
 public:
  struct Sources {
    // Is another one when the cluster's tables have changed; looked at twice a
    // second.
    std::function<uint64_t()> state_fingerprint;
    // Returns the version of all runs: at once if it is not `version`, else
    // when it changes or after `timeout`. Null: there are no runs.
    std::function<int64_t(int64_t version, absl::Duration timeout)> await_runs;
  };
  // They are to be compared for being the same: after a restart of the head
  // they begin anew.
  struct Versions {
    int64_t state = 0;
    int64_t runs = 0;
    bool operator==(const Versions&) const = default;
  };

  explicit ChangeFeed(Sources sources);
  ~ChangeFeed();

  // While one lives somebody watches. REQUIRES: the feed outlives it.
  class Watch {
   public:
    explicit Watch(ChangeFeed* feed);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // Waits until the versions are not `seen`, at most `timeout`, and returns
    // them.
    Versions Await(const Versions& seen, absl::Duration timeout);

   private:
    ChangeFeed& feed_;
  };

  // Whoever waits returns, and from now on nobody waits. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  bool stopped() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Look() ABSL_LOCKS_EXCLUDED(mu_);

  const Sources sources_;
  mutable absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  int watches_ ABSL_GUARDED_BY(mu_) = 0;
  Versions versions_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_DASHBOARD_CHANGE_FEED_H_
