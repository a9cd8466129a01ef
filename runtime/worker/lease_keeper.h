// Renews a node's lease at the head, from a thread that does nothing else: a
// busy machine must not be taken for a dead one.

#ifndef MINIRAY_RUNTIME_WORKER_LEASE_KEEPER_H_
#define MINIRAY_RUNTIME_WORKER_LEASE_KEEPER_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "proto/head.grpc.pb.h"
#include "runtime/worker/head_link.h"

namespace miniray {

class LeaseKeeper {
 public:
  // Called by the keeper's thread.
  struct Callbacks {
    // No contact for several leases: the head gave us up long ago, and may
    // have started our actors elsewhere; or it is gone, and nobody can end
    // them any more.
    std::function<void(absl::Duration silence)> on_cut_off;
  };

  // Starts. All outlive it. Where the head no longer knows the node, the link
  // dials again, and hears what to do.
  LeaseKeeper(std::string token, v1::Head::Stub* stub, HeadLink* link,
              Callbacks callbacks);
  ~LeaseKeeper() { Stop(); }

  // Idempotent.
  void Stop();

 private:
  void Loop();

  const std::string token_;
  v1::Head::Stub* const stub_;
  HeadLink* const link_;
  const Callbacks callbacks_;
  absl::Notification stopping_;
  std::thread thread_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_LEASE_KEEPER_H_
