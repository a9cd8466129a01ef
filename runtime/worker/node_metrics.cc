#include "runtime/worker/node_metrics.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/version.h"
#include "runtime/metrics/metric_labels.h"

namespace miniray {
namespace {

void AddObjectMetrics(const ObjectStore::Stats& stats, MetricPage* page) {
  const auto objects = [&](const char* place, int64_t count, int64_t bytes) {
    page->Gauge("miniray_object_store_objects",
                "Objects in the node's store, by where they lie.",
                static_cast<double>(count), {{"place", place}});
    page->Gauge("miniray_object_store_bytes",
                "Bytes of the objects in the node's store.",
                static_cast<double>(bytes), {{"place", place}});
  };
  objects("memory", stats.objects, stats.bytes);
  objects("disk", stats.spilled_objects, stats.spilled_bytes);
  const auto bytes = [&](const char* direction, const char* path,
                         int64_t count) {
    page->Counter("miniray_object_store_transferred_bytes_total",
                  "Bytes of objects that the node's store received and sent.",
                  static_cast<double>(count),
                  {{"direction", direction}, {"path", path}});
  };
  bytes("received", "shared_memory", stats.adopted_bytes);
  bytes("received", "tcp", stats.put_bytes + stats.fetched_bytes);
  bytes("sent", "shared_memory", stats.mapped_bytes);
  bytes("sent", "tcp", stats.sent_bytes);
}

void AddGpuMetrics(const std::vector<MeasuredGpu>& gpus, MetricPage* page) {
  for (const auto& [index, gpu] : gpus) {
    const MetricLabels labels = {{"gpu", absl::StrCat(index)},
                                 {"name", gpu.name()},
                                 {"uuid", gpu.uuid()}};
    if (gpu.has_busy()) {
      page->Gauge("miniray_node_gpu_busy_ratio",
                  "Share of the time lately in which the GPU ran something.",
                  gpu.busy(), labels);
    }
    page->Gauge("miniray_node_gpu_memory_used_bytes",
                "Memory of the GPU that is in use.",
                static_cast<double>(gpu.memory_used_bytes()), labels);
    page->Gauge("miniray_node_gpu_memory_capacity_bytes", "All of that memory.",
                static_cast<double>(gpu.memory_total_bytes()), labels);
  }
}

}  // namespace

void AddNodeMetrics(const NodeFigures& figures, MetricPage* page) {
  page->Gauge("miniray_node_info", "1, with what names the node.", 1,
              {{"hostname", figures.hostname},
               {"node", figures.node_id},
               {"version", std::string(kVersion)}});
  page->Gauge("miniray_head_connected",
              "Whether the daemon has its stream to the head: 1, else 0.",
              figures.head_connected ? 1 : 0);
  if (figures.memory.has_value()) {
    page->Gauge("miniray_node_memory_used_bytes",
                "Memory in use, of the machine or the daemon's control group.",
                static_cast<double>(figures.memory->used_bytes));
    page->Gauge("miniray_node_memory_capacity_bytes", "All of that memory.",
                static_cast<double>(figures.memory->total_bytes));
  }
  page->Gauge("miniray_node_actors", "Actors that the node has, or starts.",
              static_cast<double>(figures.actors));
  page->Gauge("miniray_node_actor_processes", "Processes of the node's actors.",
              static_cast<double>(figures.actor_processes));
  const auto kills = [&](const char* by, int64_t count) {
    page->Counter("miniray_oom_kills_total",
                  "Processes of actors and jobs that were killed for memory: "
                  "by the daemon (--memory_limit), or, as far as it is known, "
                  "by the kernel.",
                  static_cast<double>(count), {{"by", by}});
  };
  kills("daemon", figures.daemon_memory_kills);
  kills("kernel", figures.kernel_memory_kills);
  AddObjectMetrics(figures.objects, page);
  AddGpuMetrics(figures.gpus, page);
}

}  // namespace miniray
