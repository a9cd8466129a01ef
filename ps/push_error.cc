#include "ps/push_error.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ps/await_calls.h"

namespace miniray::ps {
namespace {

// Of the workers that are behind, those that a message names.
constexpr size_t kMaxNames = 10;

}  // namespace

absl::Status PushError(const absl::Status& first, int64_t version,
                       const std::vector<AnyActorHandle>& workers,
                       const std::vector<BehindWorker>& behind) {
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(behind.size(), kMaxNames); ++i) {
    const auto worker = static_cast<size_t>(behind[i].worker);
    names.push_back(WorkerName(worker, workers[worker]));
  }
  if (behind.size() > kMaxNames) {
    names.push_back(absl::StrCat(behind.size() - kMaxNames, " more"));
  }
  return absl::Status(
      first.code(),
      absl::StrCat(first.message(), "; ", workers.size() - behind.size(),
                   " of ", workers.size(), " workers have the server's weights",
                   version > 0 ? absl::StrCat(", version ", version) : "",
                   ", and what they had before is still with ",
                   absl::StrJoin(names, ", "),
                   ": PushToWorkers sends them again"));
}

}  // namespace miniray::ps
