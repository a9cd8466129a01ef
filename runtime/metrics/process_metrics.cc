#include "runtime/metrics/process_metrics.h"

#include <algorithm>
#include <numeric>

#include "absl/base/casts.h"
#include "runtime/base/utf8.h"

namespace miniray {
namespace {

// A message with anything else would be refused as a whole. Cut first: what is
// cut in the midst of a character is mended.
MetricLabels Tidy(const MetricLabels& labels) {
  MetricLabels tidy;
  for (const auto& [name, value] : labels) {
    tidy.emplace_back(ToUtf8(name),
                      ToUtf8(value.substr(0, ProcessMetrics::kMaxLabelBytes)));
  }
  return tidy;
}

}  // namespace

void MetricHistogram::RecordMicros(int64_t micros) {
  micros = std::max<int64_t>(micros, 0);
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), micros);
  // Before the count, by which a reader sees that there is news.
  sum_micros_.fetch_add(static_cast<uint64_t>(micros),
                        std::memory_order_relaxed);
  counts_[static_cast<size_t>(bound - kBounds.begin())].fetch_add(
      1, std::memory_order_relaxed);
}

std::array<uint64_t, MetricHistogram::kBuckets> MetricHistogram::counts()
    const {
  std::array<uint64_t, kBuckets> counts;
  for (size_t i = 0; i < kBuckets; ++i) {
    counts[i] = counts_[i].load(std::memory_order_relaxed);
  }
  return counts;
}

uint64_t MetricHistogram::count() const {
  const std::array<uint64_t, kBuckets> each = counts();
  return std::accumulate(each.begin(), each.end(), uint64_t{0});
}

ProcessMetrics& ProcessMetrics::Get() {
  static auto* const metrics = new ProcessMetrics;
  return *metrics;
}

ProcessMetrics::Series& ProcessMetrics::Find(v1::MetricKind kind,
                                             absl::string_view name,
                                             absl::string_view help,
                                             const MetricLabels& labels) {
  MetricLabels key = Tidy(labels);
  absl::MutexLock lock(&mu_);
  auto family = families_.find(name);
  if (family == families_.end()) {
    if (families_.size() >= kMaxMetrics) return unheard_;
    family =
        families_
            .emplace(ToUtf8(name),
                     Family{.help = ToUtf8(help), .kind = kind, .series = {}})
            .first;
  }
  if (family->second.kind != kind) return unheard_;
  auto& all = family->second.series;
  if (all.size() >= kMaxSeries && !all.contains(key)) {
    for (auto& [label, value] : key) value = kOtherSeries;
  }
  std::unique_ptr<Series>& series = all[key];
  if (series == nullptr) series = std::make_unique<Series>();
  return *series;
}

MetricCounter& ProcessMetrics::Counter(absl::string_view name,
                                       absl::string_view help,
                                       const MetricLabels& labels) {
  return Find(v1::METRIC_KIND_COUNTER, name, help, labels).counter;
}

MetricGauge& ProcessMetrics::Gauge(absl::string_view name,
                                   absl::string_view help,
                                   const MetricLabels& labels) {
  return Find(v1::METRIC_KIND_GAUGE, name, help, labels).gauge;
}

MetricHistogram& ProcessMetrics::Histogram(absl::string_view name,
                                           absl::string_view help,
                                           const MetricLabels& labels) {
  return Find(v1::METRIC_KIND_HISTOGRAM, name, help, labels).histogram;
}

uint64_t ProcessMetrics::Version(const Family& family, const Series& series) {
  switch (family.kind) {
    case v1::METRIC_KIND_COUNTER:
      return series.counter.value();
    case v1::METRIC_KIND_GAUGE:
      return absl::bit_cast<uint64_t>(series.gauge.value());
    default:
      return series.histogram.count();
  }
}

v1::MetricReport ProcessMetrics::TakeChanges() {
  v1::MetricReport report;
  absl::MutexLock lock(&mu_);
  for (auto& [name, family] : families_) {
    v1::MetricFamily* told = nullptr;
    for (auto& [labels, series] : family.series) {
      // Before the figures: what comes between is told the next time again.
      const uint64_t version = Version(family, *series);
      if (series->told == version) continue;
      series->told = version;
      series->ever_told = true;
      if (told == nullptr) {
        told = report.add_families();
        told->set_name(name);
        told->set_help(family.help);
        told->set_kind(family.kind);
      }
      v1::MetricSeries* const out = told->add_series();
      for (const auto& [label, value] : labels) {
        v1::MetricLabel* const pair = out->add_labels();
        pair->set_name(label);
        pair->set_value(value);
      }
      switch (family.kind) {
        case v1::METRIC_KIND_COUNTER:
          out->set_value(static_cast<double>(series->counter.value()));
          break;
        case v1::METRIC_KIND_GAUGE:
          out->set_value(series->gauge.value());
          break;
        default:
          for (const uint64_t count : series->histogram.counts()) {
            out->add_counts(count);
          }
          out->set_sum_seconds(series->histogram.sum_seconds());
      }
    }
  }
  return report;
}

void ProcessMetrics::TellAgain() {
  absl::MutexLock lock(&mu_);
  for (auto& [name, family] : families_) {
    for (auto& [labels, series] : family.series) {
      if (series->ever_told) series->told.reset();
    }
  }
}

}  // namespace miniray
