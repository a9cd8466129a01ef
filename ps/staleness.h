// How far the workers that push gradients are, which of them wait for which,
// and how much an old gradient counts.
//
// A worker's clock is the number of its gradients. With a bound s
// ("stale synchronous parallel") no worker is more than s clocks ahead of the
// slowest:
//   Ho, Cipar, Cui, Lee, Kim, Gibbons, Gibson, Ganger, Xing 2013, More
//   Effective Distributed ML via a Stale Synchronous Parallel Parameter Server.
//
// The staleness of a gradient is the number of versions that the server's
// weights are ahead of those that it was computed with. Where nobody waits, one
// that is more than s versions old takes a smaller step:
//   lr scale = 1 / (1 + staleness - s)
//   Xie, Koyejo, Gupta 2019, Asynchronous Federated Optimization, "hinge".
// The learning rate is scaled, as in Zhang, Gupta, Lian, Liu 2016,
// Staleness-aware Async-SGD for Distributed Deep Learning, and not the
// gradient: Adam's steps do not depend on the gradient's scale.

#ifndef MINIRAY_PS_STALENESS_H_
#define MINIRAY_PS_STALENESS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/wire/codec.h"

namespace miniray::ps {

// What bounds the staleness.
enum class StalenessPolicy {
  kWait,  // Workers that are too far ahead wait for the slowest.
  kDamp,  // Nobody waits; gradients that are too old take smaller steps.
};

inline constexpr int64_t kUnboundedStaleness = -1;

// Names one gradient, however often it is sent.
struct PushId {
  int worker = 0;        // From 0.
  int64_t sequence = 0;  // From 1; grows with each gradient of the worker.
};
MINIRAY_STRUCT(PushId, worker, sequence);

struct WorkerClock {
  int worker = 0;
  int64_t clock = 0;  // Its gradients; those it joined late for included.
  int64_t last_sequence = 0;  // Of its gradients that were taken; 0: none.
  bool active = true;         // Waited for: it has neither left nor been late.
};
MINIRAY_STRUCT(WorkerClock, worker, clock, last_sequence, active);

// A value; not thread-safe.
class WorkerClocks {
 public:
  struct Options {
    int64_t num_workers = 0;  // Active from the start: 0 ... num_workers - 1.
    int64_t max_staleness = kUnboundedStaleness;
    StalenessPolicy policy = StalenessPolicy::kWait;
  };
  explicit WorkerClocks(const Options& options);

  // The worker is active from now on; one that was not begins at the slowest's
  // clock, so that nobody waits for what it missed.
  void Join(int worker);
  // Nobody waits for it until it joins again.
  void Leave(int worker);

  // Whether this gradient was taken before.
  bool Taken(const PushId& id) const;
  // It is taken: used, or left out for good. The worker joins.
  void Take(const PushId& id);

  // The active workers that `worker` must wait for before it goes on; none if
  // it may.
  std::vector<int> HeldUpBy(int worker) const;

  // How large a step is that a gradient so old takes, in (0, 1].
  double LearningRateScale(int64_t staleness) const;

  std::vector<int> Active() const;
  // In ascending order of the workers.
  std::vector<WorkerClock> State() const;
  // Of one worker; zeros if it is not known.
  WorkerClock Of(int worker) const;
  // Goes on from what State returned.
  void Restore(const std::vector<WorkerClock>& state);

 private:
  const Options options_;
  std::map<int, WorkerClock> clocks_;
};

// How many gradients were how old: element s counts those of staleness s, the
// last one those of kMaxCountedStaleness and more.
inline constexpr int64_t kMaxCountedStaleness = 100;
void CountStaleness(int64_t staleness, std::vector<int64_t>* histogram);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_STALENESS_H_
