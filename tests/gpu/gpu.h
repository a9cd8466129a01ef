// What the tests on a GPU have in common.

#ifndef MINIRAY_TESTS_GPU_GPU_H_
#define MINIRAY_TESTS_GPU_GPU_H_

#include <stdexcept>
#include <string>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "tests/runtime/test_cluster.h"
#include "train/device.h"

namespace miniray {

// The first CUDA device. Where there is none the test fails, with the cause:
// none of these is skipped.
inline c10::Device RequireGpu() {
  const absl::StatusOr<c10::Device> device = train::ChooseDevice("cuda");
  if (device.ok()) return *device;
  throw std::runtime_error(std::string(device.status().message()));
}

// A node of a TestCluster that offers one GPU, the first.
inline TestCluster::Options OneGpu() {
  TestCluster::Options options;
  options.node_cpus = {8};
  options.configure_node = [](WorkerDaemon::Options* node) {
    (*node->resources.mutable_quantity())["GPU"] = 1;
  };
  return options;
}

}  // namespace miniray

#endif  // MINIRAY_TESTS_GPU_GPU_H_
