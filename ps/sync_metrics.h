// Synchronisations, counted for Prometheus (runtime/metrics).

#ifndef MINIRAY_PS_SYNC_METRICS_H_
#define MINIRAY_PS_SYNC_METRICS_H_

#include "absl/status/statusor.h"
#include "ps/sync_result.h"
#include "runtime/metrics/process_metrics.h"

namespace miniray::ps {

// Counts one synchronisation: how it ended, and if it ended well, what each
// phase took and the bytes that travelled. Thread-safe.
void RecordSync(const absl::StatusOr<SyncResult>& result,
                ProcessMetrics* metrics = &ProcessMetrics::Get());

}  // namespace miniray::ps

#endif  // MINIRAY_PS_SYNC_METRICS_H_
