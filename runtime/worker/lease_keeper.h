// Renews a node's lease at the head, from a thread that does nothing else: a
// busy machine must not be taken for a dead one. While the head does not have
// the node's stream, the renewals, which then are all that tells a living
// daemon from a dead one, come more often.

#ifndef MINIRAY_RUNTIME_WORKER_LEASE_KEEPER_H_
#define MINIRAY_RUNTIME_WORKER_LEASE_KEEPER_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "proto/head.grpc.pb.h"
#include "runtime/base/net.h"
#include "runtime/worker/head_link.h"

namespace miniray {

class LeaseKeeper {
 public:
  // Of the lease, after which it is renewed: less than the third after which
  // the head loses a node whose stream broke, even if it alone has noticed.
  static constexpr double kPeriod = 0.3;

  struct Options {
    HostPort head;
    std::string token;
    // Silence after which what the node runs is ended; zero: three leases. The
    // head may live and have started it elsewhere long ago.
    absl::Duration fence_after;
    // The same where the head's machine says that nobody listens there: a head
    // that is dead has started nothing elsewhere, so only its return is waited
    // for.
    absl::Duration headless_timeout = absl::Hours(1);
  };
  // Called by the keeper's thread.
  struct Callbacks {
    // One of the two times is over. `why`: "no contact with the head for 30s".
    std::function<void(const std::string& why)> on_cut_off;
  };

  // Starts. All outlive it. Where the head no longer knows the node, the link
  // dials again, and hears what to do.
  LeaseKeeper(Options options, v1::Head::Stub* stub, HeadLink* link,
              Callbacks callbacks);
  ~LeaseKeeper() { Stop(); }

  // Idempotent.
  void Stop();

 private:
  void Loop();
  // Until the next renewal is due, `pause` (of the lease) from now or sooner.
  // False: the keeper is to stop.
  bool Await(double pause);

  const Options options_;
  v1::Head::Stub* const stub_;
  HeadLink* const link_;
  const Callbacks callbacks_;
  absl::Notification stopping_;
  std::thread thread_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_LEASE_KEEPER_H_
