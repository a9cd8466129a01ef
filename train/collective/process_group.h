// ProcessGroup: the ranks of a worker group, and collectives over them. It
// stands on Gloo, and for tensors on GPUs on NCCL where there is one and each
// rank has a GPU of its own (gpu_backend.h).
//
//   ProcessGroup group({.rank = rank, .world_size = n, .address = ip});
//   MR_RETURN_IF_ERROR(group.Start(store));      // in all ranks
//   MR_RETURN_IF_ERROR(group.AllReduce(tensor, ReduceOp::kMean));
//
// and, in another thread, when the runtime has said that a rank is dead:
//
//   group.Abort(absl::AbortedError("rank 2 died: killed by signal 9"));
//
// upon which whatever blocks in Start or in a collective returns that status,
// in milliseconds, and so does every later call. A group is used once: the next
// generation makes a new one, in the same process if it likes.
//
// All ranks must call the same collectives in the same order, with tensors of
// the same shapes and types; where they do not, Gloo may end the process. So
// one thread at a time calls them, the backward passes of DistributedModules
// included. Abort, status and what only reads may be called by any thread.
//
// Needs no header of c10d: those cost 7 s to compile.

#ifndef MINIRAY_TRAIN_COLLECTIVE_PROCESS_GROUP_H_
#define MINIRAY_TRAIN_COLLECTIVE_PROCESS_GROUP_H_

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "c10/core/Device.h"
#include "runtime/api/miniray.h"
#include "train/collective/backend.h"
#include "train/collective/rendezvous_store.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace miniray::train {

// Returns the IP address at which the other ranks reach this process: in an
// actor, the address of its node, by which that node reached the head (or
// `start --node_ip`); elsewhere, the one from which this machine reaches the
// head. The host's name plays no part in it. Errors: UNAVAILABLE, the head does
// not answer, or no longer knows the node.
absl::StatusOr<std::string> CollectiveAddress(const Cluster& cluster);

class ProcessGroup {
 public:
  struct Options {
    int rank = 0;        // In [0, world_size).
    int world_size = 1;  // At least 1.
    // The IP address of this process that others connect to; a port is found.
    // See CollectiveAddress. Names of hosts are refused.
    std::string address = "127.0.0.1";
    // How long a collective may take. Ranks that merely hang are noticed by it,
    // dead ones at once. Finite, at least a millisecond.
    absl::Duration timeout = absl::Minutes(5);
    // How long Start waits for the other ranks. Finite.
    absl::Duration start_timeout = absl::Minutes(2);
    // Tells apart the groups that use one store.
    std::string name = "default";
    // How many collectives run at a time.
    int num_threads = 2;
  };

  // Makes no connection yet.
  explicit ProcessGroup(Options options);
  // Closes the connections. REQUIRES: no call is under way, and what was
  // started through BackendFor has been waited for.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  // Blocks until all ranks have called it and are connected. To be called once.
  //
  // Errors: INVALID_ARGUMENT, of the options. DEADLINE_EXCEEDED, ranks are
  // missing (the message names them). UNAVAILABLE, the store or a rank died.
  // Abort's status. FAILED_PRECONDITION, called before.
  absl::Status Start(const ActorHandle<RendezvousStore>& store);
  // The same over any store of LibTorch's, such as a HashStore that threads of
  // one process share. Takes a reference of its own. Abort and start_timeout
  // end what waits in such a store only where the store's own waits end.
  absl::Status Start(c10d::Store& store);
  // The same for a group of one, which needs no store.
  absl::Status StartAlone();

  // Makes whatever blocks here fail with `status`, closes the connections, so
  // that other ranks that wait for this one fail as well, and makes every later
  // call fail with `status`. Of several calls the first counts. What waits
  // ends in milliseconds; the call returns when all connections are closed, up
  // to 10 ms for each. May be called at any time from any thread, before Start
  // and during it too.
  //
  // status: not OK.
  void Abort(absl::Status status);

  // OK as long as the group may be used; else what Abort was told, or how the
  // first collective failed. A failed collective leaves ranks in the middle of
  // an exchange, so it aborts the group.
  absl::Status status() const;

  // How many of this rank's sends and receives wait for another rank now: 0
  // where no collective is in the middle of it.
  int waits() const;

  int rank() const;
  int world_size() const;
  const Options& options() const;

  // --- Collectives. They block until the tensors may be used.
  //
  // Tensors are on the CPU or a GPU, the same in all ranks, dense, and of type
  // float16, float32, float64, int8, uint8, int32 or int64, besides what is
  // said below; they need not be contiguous. A world of one calls them too. Of
  // those on GPUs, what the stream of this thread is given next sees the
  // results.
  //
  // Errors: INVALID_ARGUMENT, before anything is sent: a tensor that cannot
  // travel, a root that is none; the group may still be used. All others abort
  // the group: DEADLINE_EXCEEDED, Options::timeout has passed. UNAVAILABLE, a
  // connection to another rank broke: it is dead, or has aborted. Abort's
  // status. Each names collective and rank. FAILED_PRECONDITION, not started.

  // Gives all ranks what `root` has in `tensors`, which may be of any type, of
  // different ones too. Small tensors travel together.
  absl::Status Broadcast(const std::vector<at::Tensor>& tensors, int root = 0);
  absl::Status Broadcast(const at::Tensor& tensor, int root = 0);

  // Replaces `tensor` in all ranks by the sum (mean, ...) over the ranks, the
  // same bits everywhere. 16-bit types are summed in float32. kMean needs a
  // floating-point type.
  absl::Status AllReduce(const at::Tensor& tensor,
                         ReduceOp op = ReduceOp::kSum);
  // The same for a number; no mean.
  absl::StatusOr<int64_t> AllReduce(int64_t value, ReduceOp op);

  // Returns the tensors of all ranks, by rank. They must have one shape.
  absl::StatusOr<std::vector<at::Tensor>> AllGather(const at::Tensor& tensor);

  // The same for texts, whose lengths may differ.
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view bytes);

  // Returns once all ranks have called it.
  absl::Status Barrier();

  // --- For what the above does not offer.

  // What exchanges the tensors of a device. The first call for a GPU connects
  // the ranks' GPUs, and so all ranks must make it. What it throws goes to
  // FailureOf. Valid as long as the ProcessGroup. For one thread at a time.
  //
  // Errors: as of the collectives.
  absl::StatusOr<internal::Backend*> BackendFor(c10::Device device);

  // Turns what a backend threw into the status that a collective here would
  // return, and aborts the group. `what` names the call.
  absl::Status FailureOf(absl::string_view what, const std::exception& error);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_COLLECTIVE_PROCESS_GROUP_H_
