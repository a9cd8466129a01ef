// Which tensors of a model are parameters and which are buffers.

#ifndef MINIRAY_PS_TENSOR_INFO_H_
#define MINIRAY_PS_TENSOR_INFO_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ps/sync_strategy.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

// True for names that end in running_mean, running_var or num_batches_tracked,
// as the buffers of LibTorch's normalisation layers do.
bool IsBufferName(absl::string_view name);

// Returns what is known of each tensor of the contribution: its info, or what
// the names tell if there is none.
std::vector<TensorInfo> InfoOf(const Contribution& contribution);

// Returns the info of a model whose worker names its buffers.
//
// Errors: INVALID_ARGUMENT, a name is none of the model's.
absl::StatusOr<std::shared_ptr<const std::vector<TensorInfo>>> MakeInfo(
    const NamedTensors& model, const std::vector<std::string>& buffers);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_TENSOR_INFO_H_
