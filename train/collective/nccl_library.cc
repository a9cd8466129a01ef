#include "train/collective/nccl_library.h"

#include <dlfcn.h>

#include <optional>

namespace miniray::train::internal {
namespace {

// 2.10 is the first version with the numbers of bfloat16 and with errors'
// texts.
constexpr int kOldest = 21000;

template <class Function>
bool Take(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

std::optional<NcclLibrary> Load() {
  // Only if something else of the process has loaded it: LibTorch with CUDA.
  void* const library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return std::nullopt;
  NcclLibrary nccl = {};
  int version = 0;
  Take(library, "ncclGetLastError", &nccl.get_last_error);  // Since 2.13.
  if (!Take(library, "ncclGetVersion", &nccl.get_version) ||
      !Take(library, "ncclGetUniqueId", &nccl.get_unique_id) ||
      !Take(library, "ncclCommInitRank", &nccl.comm_init_rank) ||
      !Take(library, "ncclCommDestroy", &nccl.comm_destroy) ||
      !Take(library, "ncclCommAbort", &nccl.comm_abort) ||
      !Take(library, "ncclCommGetAsyncError", &nccl.comm_get_async_error) ||
      !Take(library, "ncclGetErrorString", &nccl.get_error_string) ||
      !Take(library, "ncclAllReduce", &nccl.all_reduce) ||
      !Take(library, "ncclBroadcast", &nccl.broadcast) ||
      !Take(library, "ncclAllGather", &nccl.all_gather) ||
      !Take(library, "ncclSend", &nccl.send) ||
      !Take(library, "ncclRecv", &nccl.receive) ||
      !Take(library, "ncclGroupStart", &nccl.group_start) ||
      !Take(library, "ncclGroupEnd", &nccl.group_end) ||
      nccl.get_version(&version) != NcclLibrary::kSuccess ||
      version < kOldest) {
    return std::nullopt;
  }
  return nccl;
}

}  // namespace

const NcclLibrary* NcclLibrary::Find() {
  static const std::optional<NcclLibrary> nccl = Load();
  return nccl.has_value() ? &*nccl : nullptr;
}

}  // namespace miniray::train::internal
