#include "runtime/metrics/metric_page.h"

#include <prometheus/text_serializer.h>

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/utf8.h"

namespace miniray {

using prometheus::ClientMetric;
using prometheus::MetricType;

const char kMetricPageType[] = "text/plain; version=0.0.4; charset=utf-8";

ClientMetric& MetricPage::Add(absl::string_view name, absl::string_view help,
                              MetricType type, const MetricLabels& labels) {
  const auto [it, is_new] =
      places_.try_emplace(std::string(name), families_.size());
  if (is_new) {
    // The serializer takes it as it is.
    families_.push_back({.name = it->first,
                         .help = absl::StrReplaceAll(
                             ToUtf8(help), {{"\\", "\\\\"}, {"\n", "\\n"}}),
                         .type = type});
  }
  ClientMetric& metric = families_[it->second].metric.emplace_back();
  for (const auto& [label, value] : labels) {
    // One byte that is no character would cost Prometheus the whole page.
    metric.label.push_back({label, ToUtf8(value)});
  }
  return metric;
}

void MetricPage::Counter(absl::string_view name, absl::string_view help,
                         double value, const MetricLabels& labels) {
  Add(name, help, MetricType::Counter, labels).counter.value = value;
}

void MetricPage::Gauge(absl::string_view name, absl::string_view help,
                       double value, const MetricLabels& labels) {
  Add(name, help, MetricType::Gauge, labels).gauge.value = value;
}

void MetricPage::Histogram(absl::string_view name, absl::string_view help,
                           absl::Span<const double> bounds,
                           absl::Span<const uint64_t> counts, double sum,
                           const MetricLabels& labels) {
  ClientMetric::Histogram& histogram =
      Add(name, help, MetricType::Histogram, labels).histogram;
  uint64_t total = 0;
  for (size_t i = 0; i < bounds.size(); ++i) {
    total += counts[i];
    histogram.bucket.push_back(
        {.cumulative_count = total, .upper_bound = bounds[i]});
  }
  // The serializer adds the bucket without a bound.
  histogram.sample_count = total + counts[bounds.size()];
  histogram.sample_sum = sum;
}

std::string MetricPage::Text() const {
  return prometheus::TextSerializer().Serialize(families_);
}

bool IsMetricName(absl::string_view name) {
  return !name.empty() && !absl::ascii_isdigit(name[0]) &&
         absl::c_all_of(name, [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '_';
         });
}

}  // namespace miniray
