// What tells the series of one metric apart.

#ifndef MINIRAY_RUNTIME_METRICS_METRIC_LABELS_H_
#define MINIRAY_RUNTIME_METRICS_METRIC_LABELS_H_

#include <string>
#include <utility>
#include <vector>

namespace miniray {

// Names with their values, the same names in the same order in all series of a
// metric.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// The value of every label of the one series that takes in all those for which
// a metric has no room.
inline constexpr char kOtherSeries[] = "(other)";

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_METRICS_METRIC_LABELS_H_
