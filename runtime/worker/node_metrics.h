// What a worker daemon itself tells of its node at /metrics.

#ifndef MINIRAY_RUNTIME_WORKER_NODE_METRICS_H_
#define MINIRAY_RUNTIME_WORKER_NODE_METRICS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/metrics/metric_page.h"
#include "runtime/objects/object_store.h"
#include "runtime/worker/gpu_meter.h"
#include "runtime/worker/memory_monitor.h"

namespace miniray {

struct NodeFigures {
  std::string node_id;
  std::string hostname;
  bool head_connected = false;
  std::optional<MemoryReading> memory;  // Nothing: it could not be read.
  int64_t actors = 0;
  int64_t actor_processes = 0;
  // Processes that ended for memory: by the daemon's order, and by the kernel
  // as far as that is known (OomKills).
  int64_t daemon_memory_kills = 0;
  int64_t kernel_memory_kills = 0;
  ObjectStore::Stats objects;
  std::vector<MeasuredGpu> gpus;  // Of the machine.
};

void AddNodeMetrics(const NodeFigures& figures, MetricPage* page);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_NODE_METRICS_H_
