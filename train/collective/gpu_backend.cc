#include "train/collective/gpu_backend.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "glog/logging.h"
#include "runtime/base/status_macros.h"
#include "train/collective/nccl_backend.h"
#include "train/collective/nccl_library.h"

namespace miniray::train::internal {
namespace {

// What changes with each start of the machine, and is the same in containers.
std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

const NcclLibrary* FindNccl() {
  const char* const choice = std::getenv("MINIRAY_NCCL");
  if (choice != nullptr && std::strcmp(choice, "off") == 0) return nullptr;
  return NcclLibrary::Find();
}

}  // namespace

std::string GpuName(absl::string_view machine, const char* visible, int index) {
  std::string name = absl::StrCat(index);
  if (visible != nullptr) {
    const std::vector<std::string> names = absl::StrSplit(visible, ',');
    if (index < static_cast<int>(names.size())) name = names[index];
  }
  return absl::StrCat(machine, "/", name);
}

absl::StatusOr<std::unique_ptr<Backend>> MakeGpuBackend(ProcessGroup& group,
                                                        c10::Device device) {
  const NcclLibrary* const nccl = FindNccl();
  // Empty: no NCCL in this rank.
  const std::string mine =
      nccl == nullptr ? ""
                      : GpuName(BootId(), std::getenv("CUDA_VISIBLE_DEVICES"),
                                device.has_index() ? device.index() : 0);
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                      group.AllGather(mine));
  std::set<std::string> gpus(all.begin(), all.end());
  if (gpus.contains("") || gpus.size() < all.size()) {
    LOG(INFO) << "rank " << group.rank()
              << ": gradients travel through the CPU's memory (Gloo): "
              << (gpus.contains("") ? "a rank has no NCCL"
                                    : "several ranks have one GPU");
    return nullptr;
  }
  NcclLibrary::UniqueId id = {};
  NcclLibrary::Result result = NcclLibrary::kSuccess;
  if (group.rank() == 0) result = nccl->get_unique_id(&id);
  at::Tensor bytes = at::zeros({sizeof(id.bytes)}, at::kByte);
  std::memcpy(bytes.data_ptr(), id.bytes, sizeof(id.bytes));
  MR_RETURN_IF_ERROR(group.Broadcast(bytes));
  std::memcpy(id.bytes, bytes.data_ptr(), sizeof(id.bytes));
  if (result != NcclLibrary::kSuccess) {
    return group.FailureOf("starting NCCL",
                           std::runtime_error(nccl->get_error_string(result)));
  }
  try {
    return std::make_unique<NcclBackend>(
        NcclBackend::Options{.rank = group.rank(),
                             .world_size = group.world_size(),
                             .device = device,
                             .timeout = group.options().timeout},
        *nccl, id);
  } catch (const std::exception& error) {
    return group.FailureOf("connecting with NCCL", error);
  }
}

}  // namespace miniray::train::internal
