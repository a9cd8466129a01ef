#include "train/functions/train_function.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace miniray::train::internal {

TrainFunctionPointer::TrainFunctionPointer(void (*function)(Context&))
    : address(reinterpret_cast<const void*>(function)),
      call([function](Context& context) {
        function(context);
        return absl::OkStatus();
      }) {}

TrainFunctionPointer::TrainFunctionPointer(absl::Status (*function)(Context&))
    : address(reinterpret_cast<const void*>(function)), call(function) {}

TrainFunctions& TrainFunctions::Get() {
  static TrainFunctions* const functions = new TrainFunctions;
  return *functions;
}

void TrainFunctions::Register(absl::string_view name,
                              TrainFunctionPointer function) {
  const absl::MutexLock lock(&mu_);
  const void* const address = function.address;
  const auto [it, is_new] =
      functions_.emplace(std::string(name), std::move(function));
  if (!is_new && it->second.address != address) {
    taken_twice_.insert(std::string(name));
  }
}

absl::StatusOr<std::string> TrainFunctions::NameOf(
    const TrainFunctionPointer& function) const {
  const absl::MutexLock lock(&mu_);
  for (const auto& [name, known] : functions_) {
    if (known.address != function.address) continue;
    if (!taken_twice_.contains(name)) return name;
    return absl::FailedPreconditionError(
        absl::StrCat("several train functions are called ", name,
                     ", so that workers cannot tell them apart; give them "
                     "names of their own in MINIRAY_TRAIN_FUNC"));
  }
  return absl::FailedPreconditionError(
      taken_twice_.empty()
          ? "the train function is not registered: write "
            "MINIRAY_TRAIN_FUNC(itsName); behind it"
          : absl::StrCat("the train function is not registered, or another one "
                         "has its name: there are several of ",
                         absl::StrJoin(taken_twice_, ", ")));
}

absl::StatusOr<TrainFunction> TrainFunctions::Find(
    absl::string_view name) const {
  const absl::MutexLock lock(&mu_);
  const auto it = functions_.find(name);
  if (it != functions_.end()) return it->second.call;
  std::vector<std::string> names;
  for (const auto& [known, function] : functions_) names.push_back(known);
  return absl::NotFoundError(absl::StrCat(
      "this process knows no train function ", name, "; it knows ",
      names.empty() ? "none" : absl::StrJoin(names, ", "),
      ". One in a plug-in needs the plug-in in the driver too (--plugin)"));
}

}  // namespace miniray::train::internal
