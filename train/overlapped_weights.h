// What a worker does about synchronisations that run beside its training
// (TrainerOptions::overlap_sync):
//
//   class MyWorker {
//    public:
//     absl::Status SnapshotWeights() { return overlapped_.Snapshot(); }
//     absl::Status ApplyWeights(bool trained) {
//       return overlapped_.Apply(trained);
//     }
//     ReadOnly<NamedTensors> LendWeights() { return overlapped_.Lend(); }
//     absl::Status SetWeights(const ReadOnly<NamedTensors>& weights) {
//       return overlapped_.Receive(weights.value);
//     }
//
//    private:
//     train::OverlappedWeights overlapped_{
//         [this] { return train::LendStateDict(*model_); },
//         [this](const NamedTensors& weights) {
//           return train::LoadStateDict(*model_, weights);
//         }};
//   };
//
// While no snapshot is out, Lend and Receive are those two functions: the class
// serves with overlap_sync and without it.

#ifndef MINIRAY_TRAIN_OVERLAPPED_WEIGHTS_H_
#define MINIRAY_TRAIN_OVERLAPPED_WEIGHTS_H_

#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::train {

// Thread-safe: Lend and Receive may run beside training. Snapshot and Apply,
// like all that trains, may not.
class OverlappedWeights {
 public:
  // lend: the model's weights, without a copy; contiguous, on the CPU, always
  //   the same tensors in the same order.
  // load: copies weights into the model.
  OverlappedWeights(std::function<ReadOnly<NamedTensors>()> lend,
                    std::function<absl::Status(const NamedTensors&)> load);

  // Applies what has come of the last snapshot, and takes the next one: a copy
  // of the weights, in shared memory where there is some. It is out until Apply
  // or the next Snapshot.
  //
  // Errors: FAILED_PRECONDITION, nothing has come of the last one. Of `load`.
  absl::Status Snapshot();

  // Applies what has come of the snapshot, if one is out. With the weights w,
  // the snapshot s and what came for it, m:
  //
  //   w <- w + (m - s)
  //
  // so that what was trained since the snapshot stays. Floating-point buffers,
  // known by their names (ps/tensor_info.h), become m: a variance must not
  // become negative.
  // Source: CoCoD-SGD, Shen et al., IJCAI 2019, arXiv:1906.12043, where it
  // reads m + (w - s) for the mean m of all snapshots.
  //
  // trained: whether anything was, since the snapshot. If not, the weights
  //   become m, to the last bit. Errors: as of Snapshot.
  absl::Status Apply(bool trained);

  // Returns the snapshot that is out, or else the model's own weights. Its
  // memory stays as it is until something is received for it.
  ReadOnly<NamedTensors> Lend();

  // Keeps a copy of the weights until Apply, if a snapshot is out; else loads
  // them into the model. Of several for one snapshot, the last one counts.
  //
  // Errors: INVALID_ARGUMENT, they are not those of the snapshot's model, with
  // the tensor. Of `load`.
  absl::Status Receive(const NamedTensors& weights);

 private:
  absl::Status ApplyReceived(bool trained) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::function<ReadOnly<NamedTensors>()> lend_;
  const std::function<absl::Status(const NamedTensors&)> load_;

  absl::Mutex mu_;
  bool is_out_ ABSL_GUARDED_BY(mu_) = false;
  bool has_received_ ABSL_GUARDED_BY(mu_) = false;
  // Empty before the first of each; the memory is used again.
  NamedTensors snapshot_ ABSL_GUARDED_BY(mu_);
  NamedTensors received_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_OVERLAPPED_WEIGHTS_H_
