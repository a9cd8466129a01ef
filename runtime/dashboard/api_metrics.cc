// The part of Api for Prometheus.

#include "runtime/dashboard/answers.h"
#include "runtime/dashboard/api.h"

namespace miniray {
namespace {

constexpr char kPrometheusType[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr char kNoMetrics[] = "this head has nothing for Prometheus";

}  // namespace

void Api::AddMetricsTo(Routes* routes) {
  routes->Add("GET", "/metrics", Access::kData,
              [this](const Request&, const Args&, Response& response) {
                Metrics(response);
              });
  routes->Add("GET", "/api/v1/prometheus/targets", Access::kData,
              [this](const Request& request, const Args&, Response& response) {
                MetricTargets(request, response);
              });
}

void Api::Metrics(Response& response) const {
  if (!options_.metrics) return Refuse(response, 404, kNoMetrics);
  Answer(response, options_.metrics(), kPrometheusType);
}

void Api::MetricTargets(const Request& request, Response& response) const {
  if (!options_.metric_targets) return Refuse(response, 404, kNoMetrics);
  Answer(response, options_.metric_targets(request.get_header_value("Host")),
         kJsonType);
}

}  // namespace miniray
