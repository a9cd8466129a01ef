// MINIRAY_TRAIN_FUNC makes a function a train function.
//
//   void TrainDigits(train::Context& ctx) { ... }
//   MINIRAY_TRAIN_FUNC(TrainDigits);
//
//   train::TorchTrainer trainer(TrainDigits, {...});
//
// It stands where the function is declared, in its namespace or another: in the
// program's source, or in a header if the function is inline. The function
// returns void or absl::Status, and may throw; an error ABORTED or UNAVAILABLE
// is taken, like a PeerFailure, for what came of another rank's failure, if
// there is one. Workers find it by the text within the macro, so that text must
// be another for each function.

#ifndef MINIRAY_TRAIN_FUNCTIONS_TRAIN_FUNCTION_H_
#define MINIRAY_TRAIN_FUNCTIONS_TRAIN_FUNCTION_H_

#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "runtime/base/status_macros.h"
#include "train/functions/context.h"

#define MINIRAY_TRAIN_FUNC(Function)                                         \
  [[maybe_unused]] static const bool MR_CONCAT_(miniray_train_registered_,   \
                                                __COUNTER__) =               \
      (::miniray::train::internal::TrainFunctions::Get().Register(#Function, \
                                                                  Function), \
       true)

namespace miniray::train::internal {

using TrainFunction = std::function<absl::Status(Context&)>;

// A function, whatever it returns.
struct TrainFunctionPointer {
  TrainFunctionPointer(void (*function)(Context&));          // NOLINT: converts
  TrainFunctionPointer(absl::Status (*function)(Context&));  // NOLINT

  const void* address;
  TrainFunction call;
};

// The train functions that this program knows. Filled before main. Thread-safe.
class TrainFunctions {
 public:
  static TrainFunctions& Get();

  // Again the same function: nothing happens.
  void Register(absl::string_view name, TrainFunctionPointer function);

  // The name that a function is registered with. Errors: FAILED_PRECONDITION,
  // it is not, or another function has the name too.
  absl::StatusOr<std::string> NameOf(
      const TrainFunctionPointer& function) const;

  // Errors: NOT_FOUND, with the names that are known.
  absl::StatusOr<TrainFunction> Find(absl::string_view name) const;

 private:
  mutable absl::Mutex mu_;
  std::map<std::string, TrainFunctionPointer, std::less<>> functions_
      ABSL_GUARDED_BY(mu_);
  // Names that several functions have.
  std::set<std::string, std::less<>> taken_twice_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray::train::internal

#endif  // MINIRAY_TRAIN_FUNCTIONS_TRAIN_FUNCTION_H_
