// What the head tells Prometheus: its page of figures, and where the nodes have
// theirs.

#ifndef MINIRAY_RUNTIME_HEAD_HEAD_METRICS_H_
#define MINIRAY_RUNTIME_HEAD_HEAD_METRICS_H_

#include <cstddef>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/run.pb.h"
#include "runtime/head/cluster_counts.h"
#include "runtime/metrics/metric_page.h"

namespace miniray {

// So many runs have figures, those that run first and then the newest, each so
// many metrics of its own.
inline constexpr size_t kMaxRunsInMetrics = 50;
inline constexpr size_t kMaxMetricsOfRun = 20;

void AddClusterMetrics(const ClusterCounts& counts, MetricPage* page);
void AddRunMetrics(const v1::ListRunsResponse& runs, MetricPage* page);

// The text of the head's /metrics. runs: may be null, where it knows of none.
std::string HeadMetricsPage(const ClusterCounts& counts,
                            const std::function<v1::ListRunsResponse()>& runs);

// What a `http_sd_configs` of Prometheus reads: the head and each node that has
// /metrics. head: HOST:PORT at which whoever asks reaches the head. tls: all of
// the cluster speaks HTTPS.
std::string PrometheusTargets(const ClusterCounts& counts,
                              absl::string_view head, bool tls);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_HEAD_METRICS_H_
