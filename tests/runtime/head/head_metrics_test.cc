#include "runtime/head/head_metrics.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

std::string ClusterPage(const ClusterCounts& counts) {
  MetricPage page;
  AddClusterMetrics(counts, &page);
  return page.Text();
}

std::string RunPage(const v1::ListRunsResponse& runs) {
  MetricPage page;
  AddRunMetrics(runs, &page);
  return page.Text();
}

v1::RunInfo* AddRun(const std::string& id, v1::RunState state,
                    v1::ListRunsResponse* runs) {
  v1::RunInfo* const run = runs->add_runs();
  run->set_run_id(id);
  run->set_state(state);
  run->set_eta_seconds(-1);
  return run;
}

int CountOf(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = text.find(word); at != std::string::npos;
       at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

TEST(HeadMetricsTest, EachStateHasASeriesAlsoWithoutAnybodyInIt) {
  ClusterCounts counts;
  counts.nodes = {{v1::NODE_STATE_ALIVE, 2}};
  counts.actors = {{v1::ACTOR_STATE_ALIVE, 3}, {v1::ACTOR_STATE_DEAD, 1}};
  counts.jobs = {{v1::JOB_STATE_RUNNING, 1}};
  counts.actor_restarts = 7;
  counts.nodes_lost = 1;
  counts.resources = {{"CPU", 4}, {"memory", 1e9}};
  counts.available = {{"CPU", 0.5}, {"memory", 1e9}};
  const std::string page = ClusterPage(counts);
  EXPECT_THAT(page, HasSubstr("# TYPE miniray_nodes gauge\n"
                              "miniray_nodes{state=\"alive\"} 2\n"
                              "miniray_nodes{state=\"disconnected\"} 0\n"
                              "miniray_nodes{state=\"dead\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("# TYPE miniray_actors gauge\n"
                              "miniray_actors{state=\"pending\"} 0\n"
                              "miniray_actors{state=\"starting\"} 0\n"
                              "miniray_actors{state=\"alive\"} 3\n"
                              "miniray_actors{state=\"restarting\"} 0\n"
                              "miniray_actors{state=\"dead\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("miniray_jobs{state=\"pending\"} 0\n"
                              "miniray_jobs{state=\"running\"} 1\n"
                              "miniray_jobs{state=\"succeeded\"} 0\n"
                              "miniray_jobs{state=\"failed\"} 0\n"
                              "miniray_jobs{state=\"stopped\"} 0\n"));
  EXPECT_THAT(page,
              HasSubstr("miniray_placement_groups{state=\"pending\"} 0\n"
                        "miniray_placement_groups{state=\"created\"} 0\n"
                        "miniray_placement_groups{state=\"rescheduling\"} 0\n"
                        "miniray_placement_groups{state=\"removed\"} 0\n"));
  EXPECT_THAT(page,
              HasSubstr("miniray_resource_capacity{resource=\"CPU\"} 4\n"));
  EXPECT_THAT(page,
              HasSubstr("miniray_resource_available{resource=\"CPU\"} 0.5\n"));
  EXPECT_THAT(page, HasSubstr("# TYPE miniray_actor_restarts_total counter\n"
                              "miniray_actor_restarts_total 7\n"));
  EXPECT_THAT(page, HasSubstr("miniray_nodes_lost_total 1\n"));
}

TEST(HeadMetricsTest, NamesOfResourcesAreBounded) {
  ClusterCounts counts;
  for (int i = 0; i < 200; ++i) {
    counts.resources[absl::StrCat("r", 1000 + i)] = 1;
  }
  const std::string page = ClusterPage(counts);
  EXPECT_EQ(CountOf(page, "miniray_resource_capacity{"), 50);
}

TEST(HeadMetricsTest, ARunHasItsFigures) {
  v1::ListRunsResponse runs;
  v1::RunInfo* const run = AddRun("gan-1", v1::RUN_STATE_RUNNING, &runs);
  run->set_epoch(3);
  run->set_epochs(12);
  run->set_progress(0.25);
  run->set_samples_per_second(6400.5);
  run->set_samples(128000);
  run->set_eta_seconds(70);
  run->set_num_workers(2);
  run->set_num_syncs(4);
  run->set_dropped_events(9);
  (*run->mutable_metrics())["g_loss"] = 0.75;
  (*run->mutable_metrics())["d_loss"] = std::nan("");
  AddRun("old", v1::RUN_STATE_FINISHED, &runs);
  const std::string page = RunPage(runs);
  for (const char* line :
       {"miniray_runs{state=\"running\"} 1\n",
        "miniray_runs{state=\"finished\"} 1\n",
        "miniray_runs{state=\"lost\"} 0\n",
        "# TYPE miniray_run_running gauge\n"
        "miniray_run_running{run=\"gan-1\"} 1\n"
        "miniray_run_running{run=\"old\"} 0\n",
        "miniray_run_epoch{run=\"gan-1\"} 3\n",
        "miniray_run_epochs{run=\"gan-1\"} 12\n",
        "miniray_run_progress_ratio{run=\"gan-1\"} 0.25\n",
        "miniray_run_samples_per_second{run=\"gan-1\"} 6400.5\n",
        "miniray_run_samples_total{run=\"gan-1\"} 128000\n",
        "miniray_run_eta_seconds{run=\"gan-1\"} 70\n",
        "miniray_run_workers{run=\"gan-1\"} 2\n",
        "miniray_run_syncs_total{run=\"gan-1\"} 4\n",
        "miniray_run_dropped_events_total{run=\"gan-1\"} 9\n",
        "miniray_run_metric{metric=\"d_loss\",run=\"gan-1\"} Nan\n"
        "miniray_run_metric{metric=\"g_loss\",run=\"gan-1\"} 0.75\n",
        "miniray_run_epoch{run=\"old\"} 0\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  // Not known.
  EXPECT_THAT(page, Not(HasSubstr("miniray_run_eta_seconds{run=\"old\"}")));
}

TEST(HeadMetricsTest, RunsAndTheirMetricsAreBoundedAndTheRunningComeFirst) {
  v1::ListRunsResponse runs;
  // The newest first.
  for (int i = 0; i < 200; ++i) {
    AddRun(absl::StrCat("ended-", i), v1::RUN_STATE_FINISHED, &runs);
  }
  v1::RunInfo* const run = AddRun("long", v1::RUN_STATE_RUNNING, &runs);
  for (int i = 0; i < 100; ++i) {
    (*run->mutable_metrics())[absl::StrCat("m", 100 + i)] = i;
  }
  const std::string page = RunPage(runs);
  EXPECT_THAT(page, HasSubstr("miniray_runs{state=\"finished\"} 200\n"));
  EXPECT_EQ(CountOf(page, "miniray_run_epoch{"), 50);
  EXPECT_THAT(page, HasSubstr("miniray_run_epoch{run=\"long\"}"));
  EXPECT_THAT(page, HasSubstr("miniray_run_epoch{run=\"ended-48\"}"));
  EXPECT_THAT(page, Not(HasSubstr("miniray_run_epoch{run=\"ended-49\"}")));
  EXPECT_EQ(CountOf(page, "miniray_run_metric{"), 20);
  EXPECT_THAT(page, HasSubstr("metric=\"m119\""));
  EXPECT_THAT(page, Not(HasSubstr("metric=\"m120\"")));
}

TEST(HeadMetricsTest, WithoutRunsThereIsNoWordOfThem) {
  const std::string page = HeadMetricsPage({}, nullptr);
  EXPECT_THAT(page, HasSubstr("miniray_nodes{state=\"alive\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("\nprocess_cpu_seconds_total "));
  EXPECT_THAT(page, HasSubstr("\nminiray_head_info{version=\""));
  EXPECT_THAT(page, Not(HasSubstr("miniray_run")));
  EXPECT_THAT(HeadMetricsPage({}, [] { return v1::ListRunsResponse(); }),
              HasSubstr("miniray_runs{state=\"running\"} 0\n"));
}

TEST(PrometheusTargetsTest, AreTheHeadAndEachNode) {
  ClusterCounts counts;
  counts.metrics_addresses = {{"node-1", "alpha", "10.0.0.1:1111"},
                              {"node-2", "be\"ta\xff", "[::1]:2222"}};
  const Json json = Json::parse(PrometheusTargets(counts, "127.0.0.1:8266",
                                                  /*tls=*/false));
  // As https://prometheus.io/docs/prometheus/latest/http_sd/ has it.
  EXPECT_EQ(json, Json::parse(R"([
    {"targets": ["127.0.0.1:8266"],
     "labels": {"__scheme__": "http", "role": "head"}},
    {"targets": ["10.0.0.1:1111"],
     "labels": {"__scheme__": "http", "role": "node", "node": "node-1",
                "hostname": "alpha"}},
    {"targets": ["[::1]:2222"],
     "labels": {"__scheme__": "http", "role": "node", "node": "node-2",
                "hostname": "be\"ta\ufffd"}}])"));
  const Json secure = Json::parse(PrometheusTargets({}, "localhost:1", true));
  ASSERT_EQ(secure.size(), 1);
  EXPECT_EQ(secure[0]["labels"]["__scheme__"], "https");
}

}  // namespace
}  // namespace miniray
