// What a parameter server tells of its work.

#ifndef MINIRAY_PS_SYNC_RESULT_H_
#define MINIRAY_PS_SYNC_RESULT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ps/gradient_messages.h"
#include "runtime/wire/codec.h"

namespace miniray::ps {

// What one synchronisation did.
struct SyncResult {
  // Of the weights that the workers now hold, all but num_behind of them.
  int64_t version = 0;
  int64_t num_workers = 0;
  int64_t num_refused = 0;  // Workers left out by NonFinitePolicy.
  int64_t num_lost = 0;     // Left out since they failed, died or were late.
  // Workers that did not take the weights, or not in time (min_workers): those
  // of num_lost, and those that failed, died or were late in the push. They are
  // sent them without waiting, and count again once they have them.
  int64_t num_behind = 0;
  bool repeated = false;  // By SyncOnce: only the push was done again.
  // In so many the model travelled; 0: all at once
  // (ServerOptions::piece_bytes).
  int64_t num_pieces = 0;
  int64_t bytes = 0;        // Of tensors, pulled and pushed, as they travelled.
  int64_t bytes_saved = 0;  // By compression.
  // What the server waited for, so that the sum is the time of all. In pieces,
  // pulls and pushes go on while it aggregates: seconds_pull is the wait for
  // pieces, and seconds_push what the pushes took when all had come.
  double seconds_pull = 0;  // The checks included: they overlap.
  double seconds_aggregate = 0;
  double seconds_push = 0;
};
MINIRAY_STRUCT(SyncResult, version, num_workers, num_refused, num_lost,
               num_behind, repeated, num_pieces, bytes, bytes_saved,
               seconds_pull, seconds_aggregate, seconds_push);

// What the server has done: version and num_syncs in all its life, as far as it
// is saved (state_dir), all other counts and times in this process of it.
struct SyncStats {
  // Name and options, but for secret ones: "momentum (momentum=0.9)".
  std::string strategy;
  int64_t version = 0;  // How often the weights changed; 0: there are none.
  // Synchronisations that reached every worker, or as many as min_workers says.
  int64_t num_syncs = 0;
  bool initialized = false;  // There are weights.
  int64_t num_tensors = 0;
  int64_t contributions_accepted = 0;  // Totals over all synchronisations.
  int64_t contributions_refused = 0;   // Left out by NonFinitePolicy.
  int64_t contributions_lost = 0;      // Of workers that failed or were late.
  // Of workers that contributed and then failed, died or were late as the
  // weights came.
  int64_t pushes_lost = 0;
  // Who was left out or did not take weights, and why; the last 20.
  std::vector<std::string> warnings;
  int64_t num_saves = 0;     // Of the state, by this process of the server.
  int64_t num_restarts = 0;  // Of the server.
  int64_t bytes_pulled = 0;  // As they travelled.
  int64_t bytes_pushed = 0;
  int64_t bytes_saved_pull = 0;  // By compression.
  int64_t bytes_saved_push = 0;
  double seconds_pull = 0;
  double seconds_aggregate = 0;
  double seconds_push = 0;
  GradientStats gradients;  // Of strategies that take them.
};
MINIRAY_STRUCT(SyncStats, strategy, version, num_syncs, initialized,
               num_tensors, contributions_accepted, contributions_refused,
               contributions_lost, pushes_lost, warnings, num_saves,
               num_restarts, bytes_pulled, bytes_pushed, bytes_saved_pull,
               bytes_saved_push, seconds_pull, seconds_aggregate, seconds_push,
               gradients);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_SYNC_RESULT_H_
