#include "runtime/head/head_metrics.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "runtime/base/version.h"
#include "runtime/metrics/system_metrics.h"

namespace miniray {
namespace {

// "alive" for "ACTOR_STATE_ALIVE".
std::string StateLabel(absl::string_view name, absl::string_view prefix) {
  absl::ConsumePrefix(&name, prefix);
  return absl::AsciiStrToLower(name);
}

// A series for each state, also for those that none is in: a curve that ends
// says less than one that falls to 0.
template <class State>
void AddByState(const char* name, const char* help, const char* prefix,
                const std::map<State, int64_t>& counts, State last,
                const std::string& (*name_of)(State), MetricPage* page) {
  for (int i = 1; i <= last; ++i) {
    const auto state = static_cast<State>(i);
    const auto it = counts.find(state);
    page->Gauge(name, help,
                it == counts.end() ? 0 : static_cast<double>(it->second),
                {{"state", StateLabel(name_of(state), prefix)}});
  }
}

void AddResources(const std::map<std::string, double>& resources,
                  const char* name, const char* help, MetricPage* page) {
  // Users name resources as they like.
  constexpr size_t kMost = 50;
  size_t count = 0;
  for (const auto& [resource, quantity] : resources) {
    if (++count > kMost) break;
    page->Gauge(name, help, quantity, {{"resource", resource}});
  }
}

// Those that have figures of their own.
std::vector<const v1::RunInfo*> ChosenRuns(const v1::ListRunsResponse& runs) {
  std::vector<const v1::RunInfo*> chosen;
  for (const v1::RunInfo& run : runs.runs()) chosen.push_back(&run);
  // They come with the newest first.
  std::stable_partition(chosen.begin(), chosen.end(), [](const auto* run) {
    return run->state() == v1::RUN_STATE_RUNNING;
  });
  if (chosen.size() > kMaxRunsInMetrics) chosen.resize(kMaxRunsInMetrics);
  return chosen;
}

void AddRun(const v1::RunInfo& run, MetricPage* page) {
  const MetricLabels labels = {{"run", run.run_id()}};
  page->Gauge("miniray_run_running", "Whether the run goes on: 1, else 0.",
              run.state() == v1::RUN_STATE_RUNNING ? 1 : 0, labels);
  page->Gauge("miniray_run_epoch",
              "The epoch that the run is in, from 0; after its end, those that "
              "it had.",
              static_cast<double>(run.epoch()), labels);
  page->Gauge("miniray_run_epochs", "Epochs asked for; 0: not known.",
              static_cast<double>(run.epochs()), labels);
  page->Gauge("miniray_run_progress_ratio",
              "How much of the run is done, 0 to 1; 0: not known.",
              run.progress(), labels);
  page->Gauge("miniray_run_samples_per_second",
              "Samples that all workers trained on in a second, of late.",
              run.samples_per_second(), labels);
  page->Counter("miniray_run_samples_total",
                "Samples that all workers trained on.",
                static_cast<double>(run.samples()), labels);
  if (run.eta_seconds() >= 0) {
    page->Gauge("miniray_run_eta_seconds",
                "How long the run will still take, as far as it is known.",
                run.eta_seconds(), labels);
  }
  page->Gauge("miniray_run_workers", "Workers of the run.", run.num_workers(),
              labels);
  page->Counter("miniray_run_syncs_total",
                "Synchronisations with the parameter server.",
                static_cast<double>(run.num_syncs()), labels);
  page->Counter("miniray_run_dropped_events_total",
                "Reports of the run that did not reach the head.",
                static_cast<double>(run.dropped_events()), labels);
  // A protobuf map has no order, and the same ones should be chosen each time.
  const std::map<std::string, double> metrics(run.metrics().begin(),
                                              run.metrics().end());
  size_t count = 0;
  for (const auto& [metric, value] : metrics) {
    if (++count > kMaxMetricsOfRun) break;
    page->Gauge("miniray_run_metric",
                "The last mean over the workers of what the run reports, "
                "losses among it.",
                value, {{"metric", metric}, {"run", run.run_id()}});
  }
}

}  // namespace

void AddClusterMetrics(const ClusterCounts& counts, MetricPage* page) {
  page->Gauge("miniray_head_info", "1, with the head's version.", 1,
              {{"version", std::string(kVersion)}});
  AddByState("miniray_nodes", "Nodes by state.", "NODE_STATE_", counts.nodes,
             v1::NodeState_MAX, &v1::NodeState_Name<v1::NodeState>, page);
  AddByState("miniray_actors", "Actors by state.", "ACTOR_STATE_",
             counts.actors, v1::ActorState_MAX,
             &v1::ActorState_Name<v1::ActorState>, page);
  AddByState("miniray_jobs", "Jobs, drivers' and submitted ones, by state.",
             "JOB_STATE_", counts.jobs, v1::JobState_MAX,
             &v1::JobState_Name<v1::JobState>, page);
  AddByState("miniray_placement_groups", "Placement groups by state.",
             "PLACEMENT_GROUP_STATE_", counts.groups,
             v1::PlacementGroupState_MAX,
             &v1::PlacementGroupState_Name<v1::PlacementGroupState>, page);
  AddResources(counts.resources, "miniray_resource_capacity",
               "What the living nodes offer, by resource (memory in bytes).",
               page);
  AddResources(counts.available, "miniray_resource_available",
               "What of it nobody has, by resource (memory in bytes).", page);
  page->Counter("miniray_actor_restarts_total",
                "Restarts of actors whose processes ended.",
                static_cast<double>(counts.actor_restarts));
  page->Counter("miniray_nodes_lost_total",
                "Nodes that fell silent and were given up.",
                static_cast<double>(counts.nodes_lost));
}

void AddRunMetrics(const v1::ListRunsResponse& runs, MetricPage* page) {
  std::map<v1::RunState, int64_t> by_state;
  for (const v1::RunInfo& run : runs.runs()) ++by_state[run.state()];
  AddByState("miniray_runs", "Trainings that the head knows, by state.",
             "RUN_STATE_", by_state, v1::RunState_MAX,
             &v1::RunState_Name<v1::RunState>, page);
  for (const v1::RunInfo* run : ChosenRuns(runs)) AddRun(*run, page);
}

std::string HeadMetricsPage(const ClusterCounts& counts,
                            const std::function<v1::ListRunsResponse()>& runs) {
  MetricPage page;
  AddClusterMetrics(counts, &page);
  if (runs != nullptr) AddRunMetrics(runs(), &page);
  AddProcessMetrics(&page);
  return page.Text();
}

std::string PrometheusTargets(const ClusterCounts& counts,
                              absl::string_view head, bool tls) {
  nlohmann::json groups = nlohmann::json::array();
  const auto add = [&](const std::string& address, nlohmann::json labels) {
    labels["__scheme__"] = tls ? "https" : "http";
    nlohmann::json group;
    group["targets"] = nlohmann::json::array();
    group["targets"].push_back(address);
    group["labels"] = std::move(labels);
    groups.push_back(std::move(group));
  };
  nlohmann::json labels;
  labels["role"] = "head";
  add(std::string(head), labels);
  for (const auto& node : counts.metrics_addresses) {
    labels["role"] = "node";
    labels["node"] = node.node_id;
    labels["hostname"] = node.hostname;
    add(node.address, labels);
  }
  // Names of machines come from outside, as bytes.
  return groups.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace miniray
