// Renews a node's lease at the head, from a thread that does nothing else: a
// busy machine must not be taken for a dead one. It dials nobody, ends nothing
// and logs nothing; what follows from a renewal is HeadWatch's. While the head
// does not have the node's stream, the renewals, which then are all that tells
// a living daemon from a dead one, come more often.

#ifndef MINIRAY_RUNTIME_WORKER_LEASE_KEEPER_H_
#define MINIRAY_RUNTIME_WORKER_LEASE_KEEPER_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "grpcpp/support/status.h"
#include "proto/head.grpc.pb.h"
#include "runtime/base/steady_time.h"
#include "runtime/worker/head_link.h"

namespace miniray {

class LeaseKeeper {
 public:
  // Of the lease, after which it is renewed: less than the third after which
  // the head loses a node whose stream broke, even if it alone has noticed.
  static constexpr double kPeriod = 0.3;

  // Told what became of each renewal; `status` as of LeaseStream::Renew,
  // `lease` as the head wants it now. Called by the keeper's thread: must not
  // block.
  using Listener =
      std::function<void(const grpc::Status& status, absl::Duration lease)>;

  // Starts. All outlive it. Where the head no longer knows the node, the link
  // dials again, and hears what to do.
  LeaseKeeper(std::string token, v1::Head::Stub* stub, HeadLink* link,
              Listener on_renewal);
  ~LeaseKeeper() { Stop(); }

  // Idempotent.
  void Stop();

 private:
  void Loop();
  // Until the next renewal is due, `pause` (of the lease) from now or sooner.
  // False: the keeper is to stop.
  bool Await(double pause);

  const std::string token_;
  v1::Head::Stub* const stub_;
  HeadLink* const link_;
  const Listener on_renewal_;
  SteadyNotification stopping_;
  std::thread thread_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_LEASE_KEEPER_H_
