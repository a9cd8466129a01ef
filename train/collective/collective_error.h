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
// be reduced. what() is the status's text. A trainer that sees it knows that
// the rank which throws it may not be the one that failed: ABORTED and
// UNAVAILABLE come from other ranks, all else from this one.
class CollectiveError : public std::runtime_error {
 public:
  explicit CollectiveError(absl::Status status)
      : std::runtime_error(status.ToString()), status_(std::move(status)) {}

  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_COLLECTIVE_COLLECTIVE_ERROR_H_
