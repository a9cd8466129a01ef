#include "runtime/actor/call_meter.h"

namespace miniray {
namespace internal {

CallMeter::CallMeter(ProcessMetrics* metrics, std::string class_name,
                     std::shared_ptr<MetricReporter> reporter)
    : metrics_(*metrics),
      class_name_(std::move(class_name)),
      reporter_(std::move(reporter)),
      waiting_(metrics_.Gauge("miniray_calls_waiting",
                              "Calls that wait at their actor.",
                              {{"class", class_name_}})),
      running_(metrics_.Gauge("miniray_calls_running",
                              "Calls that run at this moment.",
                              {{"class", class_name_}})) {
  constexpr const char* kPaths[] = {"shared_memory", "unix_socket", "tcp"};
  constexpr const char* kDirections[] = {"received", "sent"};
  for (int path = 0; path < 3; ++path) {
    for (int sent = 0; sent < 2; ++sent) {
      bytes_[path][sent] = &metrics_.Counter(
          "miniray_call_bytes_total",
          "Bytes of calls that actors received, and of replies they sent.",
          {{"class", class_name_},
           {"direction", kDirections[sent]},
           {"path", kPaths[path]}});
    }
  }
}

CallMeter::Method* CallMeter::Find(absl::string_view method) {
  absl::MutexLock lock(&mu_);
  const auto it = by_name_.find(method);
  if (it != by_name_.end()) return it->second;
  const MetricLabels labels = {{"class", class_name_},
                               {"method", std::string(method)}};
  methods_.push_back(Method{
      .calls = metrics_.Counter("miniray_calls_total",
                                "Calls that actors have run.", labels),
      .failures =
          metrics_.Counter("miniray_call_failures_total",
                           "Calls that ran and ended with an error.", labels),
      .queue_time = metrics_.Histogram(
          "miniray_call_queue_seconds",
          "How long calls waited at their actor before they ran.", labels),
      .run_time = metrics_.Histogram("miniray_call_run_seconds",
                                     "How long calls ran.", labels)});
  by_name_.emplace(method, &methods_.back());
  return &methods_.back();
}

void CallMeter::Update(const CallLoad& load) {
  waiting_.Set(static_cast<double>(load.waiting));
  running_.Set(static_cast<double>(load.running));
  absl::MutexLock lock(&mu_);
  // Looked up here, so that a call need not count it.
  for (Method& method : methods_) method.calls.Set(method.run_time.count());
}

std::shared_ptr<CallMeter> CallMeters::Of(absl::string_view class_name) {
  absl::MutexLock lock(&mu_);
  auto it = meters_.find(class_name);
  if (it == meters_.end()) {
    const std::string name(class_name);
    it = meters_
             .emplace(name,
                      std::make_shared<CallMeter>(&metrics_, name, reporter_))
             .first;
  }
  return it->second;
}

bool CallMeters::Update(const std::map<std::string, CallLoad>& load) {
  bool busy = false;
  absl::MutexLock lock(&mu_);
  for (const auto& [name, meter] : meters_) {
    const auto it = load.find(name);
    const CallLoad of_class = it == load.end() ? CallLoad() : it->second;
    meter->Update(of_class);
    busy = busy || of_class.waiting > 0 || of_class.running > 0;
  }
  return busy;
}

}  // namespace internal
}  // namespace miniray
