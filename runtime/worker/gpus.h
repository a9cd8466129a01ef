// The GPUs of a node, as its processes are told of them.

#ifndef MINIRAY_RUNTIME_WORKER_GPUS_H_
#define MINIRAY_RUNTIME_WORKER_GPUS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"
#include "proto/cluster.pb.h"

namespace miniray {

// What CUDA_VISIBLE_DEVICES calls the GPUs that a node offers, by their number
// at the head. `visible` is the daemon's own CUDA_VISIBLE_DEVICES, whose first
// ones these are; null: it is not set, so they are "0", "1", ... Empty: the
// node offers none. Errors: INVALID_ARGUMENT, `visible` names fewer, or one
// twice.
absl::StatusOr<std::vector<std::string>> GpuIds(const v1::Resources& offered,
                                                const char* visible);

// Those of these numbers; none where a number is out of range.
std::vector<std::string> GpuIdsOf(
    const google::protobuf::RepeatedField<int32_t>& numbers,
    const std::vector<std::string>& node_ids);

// Sets CUDA_VISIBLE_DEVICES for a process that asked for `request` and got the
// GPUs `ids` of the node's `node_ids`. One that asked for none sees none of a
// node that offers some; where the node offers none, and nobody counts, the
// daemon's own stays.
void ShowGpus(const std::vector<std::string>& ids, const v1::Resources& request,
              const std::vector<std::string>& node_ids,
              std::map<std::string, std::string>* env);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_GPUS_H_
