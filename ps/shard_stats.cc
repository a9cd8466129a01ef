#include "ps/shard_stats.h"

#include <algorithm>
#include <map>

namespace miniray::ps {
namespace {

template <class T>
void Most(T* value, const T& of_part) {
  *value = std::max(*value, of_part);
}

// Of each worker, what all shards have of it.
std::vector<WorkerClock> MergeClocks(const std::vector<WorkerClock>& a,
                                     const std::vector<WorkerClock>& b) {
  std::map<int, WorkerClock> merged;
  for (const WorkerClock& clock : a) merged[clock.worker] = clock;
  for (const WorkerClock& clock : b) {
    const auto [it, is_new] = merged.emplace(clock.worker, clock);
    if (is_new) continue;
    WorkerClock& both = it->second;
    both.clock = std::min(both.clock, clock.clock);
    both.last_sequence = std::min(both.last_sequence, clock.last_sequence);
    both.active = both.active || clock.active;
  }
  std::vector<WorkerClock> clocks;
  for (const auto& [worker, clock] : merged) clocks.push_back(clock);
  return clocks;
}

void MergeGradients(const GradientStats& part, GradientStats* all) {
  if (part.accepted > all->accepted) all->staleness = part.staleness;
  Most(&all->accepted, part.accepted);
  Most(&all->refused, part.refused);
  Most(&all->damped, part.damped);
  Most(&all->repeated, part.repeated);
  Most(&all->steps, part.steps);
  Most(&all->dropped_workers, part.dropped_workers);
  Most(&all->seconds_step, part.seconds_step);
  Most(&all->seconds_waited, part.seconds_waited);
  all->bytes += part.bytes;
  all->bytes_saved += part.bytes_saved;
  all->clocks = MergeClocks(all->clocks, part.clocks);
}

}  // namespace

SyncStats MergeShardStats(const std::vector<SyncStats>& parts) {
  SyncStats all = parts.front();
  for (size_t i = 1; i < parts.size(); ++i) {
    const SyncStats& part = parts[i];
    all.version = std::min(all.version, part.version);
    all.initialized = all.initialized && part.initialized;
    // Parts whose push did not reach all were not synchronised.
    all.num_syncs = std::min(all.num_syncs, part.num_syncs);
    all.num_tensors += part.num_tensors;
    Most(&all.contributions_accepted, part.contributions_accepted);
    Most(&all.contributions_refused, part.contributions_refused);
    Most(&all.contributions_lost, part.contributions_lost);
    Most(&all.pushes_lost, part.pushes_lost);
    Most(&all.num_saves, part.num_saves);
    Most(&all.seconds_pull, part.seconds_pull);
    Most(&all.seconds_aggregate, part.seconds_aggregate);
    Most(&all.seconds_push, part.seconds_push);
    all.num_restarts += part.num_restarts;
    all.bytes_pulled += part.bytes_pulled;
    all.bytes_pushed += part.bytes_pushed;
    all.bytes_saved_pull += part.bytes_saved_pull;
    all.bytes_saved_push += part.bytes_saved_push;
    if (part.warnings.size() > all.warnings.size()) {
      all.warnings = part.warnings;
    }
    MergeGradients(part.gradients, &all.gradients);
  }
  return all;
}

}  // namespace miniray::ps
