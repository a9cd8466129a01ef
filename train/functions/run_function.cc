#include "train/functions/run_function.h"

#include <cxxabi.h>

#include <exception>
#include <string>
#include <typeinfo>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/actor/registry.h"
#include "train/collective/collective_error.h"
#include "train/functions/train_function.h"

namespace miniray::train {
namespace {

// c10::Error's text goes on with the call stack, which says nothing about the
// function that failed.
constexpr char kCallStack[] = "\nframe #";

std::string TextOf(const std::exception& error) {
  std::string text = error.what();
  if (const size_t end = text.find(kCallStack); end != std::string::npos) {
    text.resize(end);
  }
  return text;
}

RunOutcome OutcomeOf(const absl::Status& status) {
  return {.code = static_cast<int>(status.code()),
          .message = std::string(status.message())};
}

RunOutcome Call(const internal::TrainFunction& function, Context& context) {
  try {
    const absl::Status status = function(context);
    if (status.ok()) return {};
    RunOutcome outcome = OutcomeOf(absl::Status(
        status.code(),
        absl::StrCat("the train function returned: ", status.message())));
    outcome.peer_failed =
        absl::IsAborted(status) || absl::IsUnavailable(status);
    return outcome;
  } catch (const internal::TrainingEnds&) {
    return {};
  } catch (const PeerFailure& error) {
    RunOutcome outcome = OutcomeOf(absl::AbortedError(TextOf(error)));
    outcome.peer_failed = true;
    return outcome;
  } catch (const CollectiveError& error) {
    RunOutcome outcome = OutcomeOf(error.status());
    outcome.peer_failed = error.MayComeOfPeer();
    return outcome;
  } catch (const std::exception& error) {
    return OutcomeOf(absl::UnknownError(absl::StrCat(
        "the train function threw ",
        miniray::internal::DemangledName(typeid(error)), ": ", TextOf(error))));
  } catch (const abi::__forced_unwind&) {
    throw;  // The thread is being cancelled.
  } catch (...) {
    return OutcomeOf(absl::UnknownError(
        "the train function threw something that is no std::exception"));
  }
}

}  // namespace

RunOutcome RunTrainFunction(const std::string& name, Context& context) {
  const absl::StatusOr<internal::TrainFunction> function =
      internal::TrainFunctions::Get().Find(name);
  RunOutcome outcome =
      function.ok() ? Call(*function, context) : OutcomeOf(function.status());
  // However it ended: it was asked to.
  if (context.stopped()) outcome = {};
  outcome.num_reports = context.reports_made();
  return outcome;
}

}  // namespace miniray::train
