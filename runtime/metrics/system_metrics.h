// What the kernel counts, of the machine and of this process.

#ifndef MINIRAY_RUNTIME_METRICS_SYSTEM_METRICS_H_
#define MINIRAY_RUNTIME_METRICS_SYSTEM_METRICS_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/metrics/metric_page.h"

namespace miniray {

// Seconds of all CPUs together, by what they did ("user", "idle", ...), in the
// text of /proc/stat. Empty: it is none.
std::vector<std::pair<std::string, double>> ParseCpuSeconds(
    absl::string_view stat, double ticks_per_second);

// Adds miniray_node_cpu_seconds_total and miniray_node_cpus. What cannot be
// read is left out.
void AddCpuMetrics(MetricPage* page);

// Adds process_cpu_seconds_total, process_resident_memory_bytes,
// process_open_fds and process_start_time_seconds, as all programs name them
// that Prometheus watches. What cannot be read is left out.
void AddProcessMetrics(MetricPage* page);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_METRICS_SYSTEM_METRICS_H_
