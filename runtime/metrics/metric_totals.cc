#include "runtime/metrics/metric_totals.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/match.h"

namespace miniray {
namespace {

constexpr int kMaxLabels = 10;

// Nothing: Prometheus would not take them.
std::optional<MetricLabels> LabelsOf(const v1::MetricSeries& series) {
  if (series.labels_size() > kMaxLabels) return std::nullopt;
  MetricLabels labels;
  for (const v1::MetricLabel& label : series.labels()) {
    // "le" is a histogram's own, "__" Prometheus's.
    const bool known = std::any_of(
        labels.begin(), labels.end(),
        [&](const auto& other) { return other.first == label.name(); });
    if (known || !IsMetricName(label.name()) || label.name() == "le" ||
        absl::StartsWith(label.name(), "__") ||
        label.value().size() > 2 * ProcessMetrics::kMaxLabelBytes) {
      return std::nullopt;
    }
    labels.emplace_back(label.name(), label.value());
  }
  // To Prometheus their order makes no difference.
  std::sort(labels.begin(), labels.end());
  return labels;
}

// The bounds of MetricHistogram in seconds.
std::array<double, MetricHistogram::kBounds.size()> BoundsInSeconds() {
  std::array<double, MetricHistogram::kBounds.size()> bounds;
  for (size_t i = 0; i < bounds.size(); ++i) {
    bounds[i] = static_cast<double>(MetricHistogram::kBounds[i]) / 1e6;
  }
  return bounds;
}

}  // namespace

MetricTotals::Family* MetricTotals::Find(const v1::MetricFamily& family) {
  const auto it = families_.find(family.name());
  if (it != families_.end()) {
    return it->second.kind == family.kind() ? &it->second : nullptr;
  }
  if (families_.size() >= kMaxMetrics || !IsMetricName(family.name()) ||
      (family.kind() != v1::METRIC_KIND_COUNTER &&
       family.kind() != v1::METRIC_KIND_GAUGE &&
       family.kind() != v1::METRIC_KIND_HISTOGRAM)) {
    return nullptr;
  }
  Family& created = families_[family.name()];
  created.help = family.help().substr(0, 1000);
  created.kind = family.kind();
  return &created;
}

MetricLabels MetricTotals::Place(const std::map<MetricLabels, Figures>& series,
                                 MetricLabels labels) {
  if (series.size() >= kMaxSeries && !series.contains(labels)) {
    for (auto& [label, value] : labels) value = kOtherSeries;
  }
  return labels;
}

void MetricTotals::Add(const std::string& process,
                       const v1::MetricReport& report) {
  absl::MutexLock lock(&mu_);
  std::map<Key, Figures>& told = processes_[process];
  for (const v1::MetricFamily& reported : report.families()) {
    Family* const family = Find(reported);
    if (family == nullptr) continue;
    for (const v1::MetricSeries& series : reported.series()) {
      const std::optional<MetricLabels> labels = LabelsOf(series);
      const bool histogram = family->kind == v1::METRIC_KIND_HISTOGRAM;
      if (!labels.has_value() ||
          (histogram && series.counts_size() != MetricHistogram::kBuckets) ||
          (family->kind == v1::METRIC_KIND_COUNTER &&
           !(series.value() >= 0 && std::isfinite(series.value())))) {
        continue;
      }
      const Key key = {reported.name(), *labels};
      if (told.size() >= kMaxProcessSeries && !told.contains(key)) continue;
      Figures& last = told[key];
      if (family->kind == v1::METRIC_KIND_GAUGE) {
        last.value = series.value();
        continue;
      }
      Figures& total = family->series[Place(family->series, *labels)];
      // What counts down counts nothing, here and in what follows.
      total.value += std::max(0.0, series.value() - last.value);
      last.value = std::max(last.value, series.value());
      if (!histogram) continue;
      for (size_t i = 0; i < last.counts.size(); ++i) {
        const uint64_t count = series.counts(static_cast<int>(i));
        if (count <= last.counts[i]) continue;
        total.counts[i] += count - last.counts[i];
        last.counts[i] = count;
      }
      if (series.sum_seconds() > last.sum_seconds &&
          std::isfinite(series.sum_seconds())) {
        total.sum_seconds += series.sum_seconds() - last.sum_seconds;
        last.sum_seconds = series.sum_seconds();
      }
    }
  }
}

void MetricTotals::End(const std::string& process) {
  absl::MutexLock lock(&mu_);
  processes_.erase(process);
}

double MetricTotals::Sum(const std::string& process,
                         const std::string& metric) const {
  absl::MutexLock lock(&mu_);
  const auto told = processes_.find(process);
  if (told == processes_.end()) return 0;
  double sum = 0;
  for (auto it = told->second.lower_bound({metric, {}});
       it != told->second.end() && it->first.first == metric; ++it) {
    sum += it->second.value;
  }
  return sum;
}

void MetricTotals::AddTo(MetricPage* page) const {
  static const auto bounds = BoundsInSeconds();
  absl::MutexLock lock(&mu_);
  std::map<std::string, std::map<MetricLabels, Figures>> gauges;
  for (const auto& [process, told] : processes_) {
    for (const auto& [key, figures] : told) {
      const auto family = families_.find(key.first);
      if (family == families_.end() ||
          family->second.kind != v1::METRIC_KIND_GAUGE) {
        continue;
      }
      auto& series = gauges[key.first];
      series[Place(series, key.second)].value += figures.value;
    }
  }
  for (const auto& [name, family] : families_) {
    if (page->Has(name)) continue;
    switch (family.kind) {
      case v1::METRIC_KIND_COUNTER:
        for (const auto& [labels, figures] : family.series) {
          page->Counter(name, family.help, figures.value, labels);
        }
        break;
      case v1::METRIC_KIND_GAUGE:
        for (const auto& [labels, figures] : gauges[name]) {
          page->Gauge(name, family.help, figures.value, labels);
        }
        break;
      default:
        for (const auto& [labels, figures] : family.series) {
          page->Histogram(name, family.help, bounds, figures.counts,
                          figures.sum_seconds, labels);
        }
    }
  }
}

}  // namespace miniray
