#include "ps/sync_metrics.h"

#include <cmath>
#include <cstdint>

namespace miniray::ps {
namespace {

void RecordPhase(const char* phase, double seconds, ProcessMetrics* metrics) {
  metrics
      ->Histogram("miniray_sync_seconds",
                  "What synchronisations with the parameter server took, by "
                  "phase.",
                  {{"phase", phase}})
      .RecordMicros(std::llround(seconds * 1e6));
}

}  // namespace

void RecordSync(const absl::StatusOr<SyncResult>& result,
                ProcessMetrics* metrics) {
  metrics
      ->Counter("miniray_syncs_total",
                "Synchronisations with the parameter server, by how they "
                "ended.",
                {{"result", result.ok() ? "ok" : "error"}})
      .Add();
  if (!result.ok()) return;
  // One that only repeats its push has pulled nothing.
  if (!result->repeated) {
    RecordPhase("pull", result->seconds_pull, metrics);
    RecordPhase("aggregate", result->seconds_aggregate, metrics);
  }
  RecordPhase("push", result->seconds_push, metrics);
  metrics
      ->Counter("miniray_sync_bytes_total",
                "Bytes of tensors that synchronisations pulled and pushed, as "
                "they travelled.")
      .Add(static_cast<uint64_t>(result->bytes));
}

}  // namespace miniray::ps
