// NcclLibrary: the functions of NCCL that are used here.
//
// Found in the running process, in the NCCL that LibTorch has brought along: so
// the build needs neither NCCL's headers nor CUDA's, and is the same for all
// LibTorchs.

#ifndef MINIRAY_TRAIN_COLLECTIVE_NCCL_LIBRARY_H_
#define MINIRAY_TRAIN_COLLECTIVE_NCCL_LIBRARY_H_

#include <cstddef>

namespace miniray::train::internal {

// The C interface of NCCL 2 (nccl.h), as far as it goes: types and numbers have
// not changed since 2.10.
struct NcclLibrary {
  struct UniqueId {
    char bytes[128];
  };
  using Communicator = void*;  // ncclComm_t
  using Stream = void*;        // cudaStream_t
  using Result = int;          // ncclResult_t
  static constexpr Result kSuccess = 0;
  static constexpr Result kInProgress = 7;
  // ncclDataType_t
  enum Type {
    kInt8,
    kUint8,
    kInt32,
    kUint32,
    kInt64,
    kUint64,
    kFloat16,
    kFloat32,
    kFloat64,
    kBfloat16
  };
  // ncclRedOp_t
  enum Reduction { kSum, kProduct, kMax, kMin };

  // Null: this process has no NCCL, or one that lacks a function. Thread-safe.
  static const NcclLibrary* Find();

  Result (*get_version)(int*);
  Result (*get_unique_id)(UniqueId*);
  Result (*comm_init_rank)(Communicator*, int ranks, UniqueId, int rank);
  Result (*comm_destroy)(Communicator);
  Result (*comm_abort)(Communicator);
  Result (*comm_get_async_error)(Communicator, Result*);
  const char* (*get_error_string)(Result);
  // Of the last error in this process, with its cause; null where there is
  // none.
  const char* (*get_last_error)(Communicator);
  Result (*all_reduce)(const void*, void*, size_t, int type, int reduction,
                       Communicator, Stream);
  Result (*broadcast)(const void*, void*, size_t, int type, int root,
                      Communicator, Stream);
  Result (*all_gather)(const void*, void*, size_t, int type, Communicator,
                       Stream);
  Result (*send)(const void*, size_t, int type, int peer, Communicator, Stream);
  Result (*receive)(void*, size_t, int type, int peer, Communicator, Stream);
  Result (*group_start)();
  Result (*group_end)();
};

}  // namespace miniray::train::internal

#endif  // MINIRAY_TRAIN_COLLECTIVE_NCCL_LIBRARY_H_
