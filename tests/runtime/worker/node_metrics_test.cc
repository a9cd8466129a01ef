#include "runtime/worker/node_metrics.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string PageOf(const NodeFigures& figures) {
  MetricPage page;
  AddNodeMetrics(figures, &page);
  return page.Text();
}

TEST(NodeMetricsTest, EachFigureHasItsSeries) {
  const std::string page =
      PageOf({.node_id = "node-1",
              .hostname = "alpha",
              .head_connected = true,
              .memory = MemoryReading{.used_bytes = 5, .total_bytes = 10},
              .actors = 3,
              .actor_processes = 2,
              .daemon_memory_kills = 4,
              .kernel_memory_kills = 1,
              .objects = {.objects = 6,
                          .bytes = 600,
                          .spilled_objects = 7,
                          .spilled_bytes = 700,
                          .adopted_bytes = 1,
                          .put_bytes = 20,
                          .fetched_bytes = 300,
                          .mapped_bytes = 4000,
                          .sent_bytes = 50000}});
  for (const char* line :
       {"miniray_node_info{hostname=\"alpha\",node=\"node-1\",version=\"",
        "\nminiray_head_connected 1\n", "\nminiray_node_memory_used_bytes 5\n",
        "\nminiray_node_memory_capacity_bytes 10\n",
        "\nminiray_node_actors 3\n", "\nminiray_node_actor_processes 2\n",
        "\nminiray_oom_kills_total{by=\"daemon\"} 4\n",
        "\nminiray_oom_kills_total{by=\"kernel\"} 1\n",
        "\nminiray_object_store_objects{place=\"memory\"} 6\n",
        "\nminiray_object_store_objects{place=\"disk\"} 7\n",
        "\nminiray_object_store_bytes{place=\"memory\"} 600\n",
        "\nminiray_object_store_bytes{place=\"disk\"} 700\n",
        "{direction=\"received\",path=\"shared_memory\"} 1\n",
        "{direction=\"received\",path=\"tcp\"} 320\n",  // 20 + 300.
        "{direction=\"sent\",path=\"shared_memory\"} 4000\n",
        "{direction=\"sent\",path=\"tcp\"} 50000\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST(NodeMetricsTest, WhatCouldNotBeReadIsLeftOut) {
  const std::string page = PageOf({.node_id = "node-1"});
  EXPECT_THAT(page, HasSubstr("\nminiray_head_connected 0\n"));
  EXPECT_THAT(page, Not(HasSubstr("miniray_node_memory")));
  EXPECT_THAT(page, Not(HasSubstr("miniray_node_gpu")));
}

TEST(NodeMetricsTest, EachGpuHasItsSeries) {
  NodeFigures figures;
  figures.gpus.resize(2);
  figures.gpus[1].index = 2;  // The one between does not answer.
  figures.gpus[0].usage.set_name("NVIDIA \"1\"");
  figures.gpus[0].usage.set_uuid("GPU-a");
  figures.gpus[0].usage.set_busy(0.5);
  figures.gpus[0].usage.set_memory_used_bytes(3);
  figures.gpus[0].usage.set_memory_total_bytes(4);
  const std::string page = PageOf(figures);
  const std::string first =
      "{gpu=\"0\",name=\"NVIDIA \\\"1\\\"\",uuid=\"GPU-a\"} ";
  const std::string second = "{gpu=\"2\",name=\"\",uuid=\"\"} ";
  for (const std::string& line :
       {"\nminiray_node_gpu_busy_ratio" + first + "0.5\n",
        "\nminiray_node_gpu_memory_used_bytes" + first + "3\n",
        "\nminiray_node_gpu_memory_capacity_bytes" + first + "4\n",
        "\nminiray_node_gpu_memory_capacity_bytes" + second + "0\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  // The last one does not tell.
  EXPECT_THAT(page, Not(HasSubstr("miniray_node_gpu_busy_ratio" + second)));
}

}  // namespace
}  // namespace miniray
