// CollectiveError: how a failed collective leaves code that cannot return a
// status, which is LibTorch's backward pass.

#ifndef MINIRAY_TRAIN_COLLECTIVE_COLLECTIVE_ERROR_H_
#define MINIRAY_TRAIN_COLLECTIVE_COLLECTIVE_ERROR_H_

#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace miniray::train {

// Thrown by loss.backward() when the gradients of a DistributedModule could not
// be reduced. what() is the status's text.
class CollectiveError : public std::runtime_error {
 public:
  explicit CollectiveError(absl::Status status)
      : std::runtime_error(status.ToString()), status_(std::move(status)) {}

  const absl::Status& status() const { return status_; }

  // Whether the rank that throws it may not be the one that failed: it was told
  // to stop, a connection to another rank broke, or another does not come.
  bool MayComeOfPeer() const {
    return absl::IsAborted(status_) || absl::IsUnavailable(status_) ||
           absl::IsDeadlineExceeded(status_);
  }

 private:
  absl::Status status_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_COLLECTIVE_COLLECTIVE_ERROR_H_
