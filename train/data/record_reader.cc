#include "train/data/record_reader.h"

#include <map>
#include <utility>

#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "glog/logging.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {
namespace {

ABSL_CONST_INIT absl::Mutex mu(absl::kConstInit);

// Never destroyed: threads may look up while the program ends.
std::map<std::string, RecordFormat>& Formats()
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
  static auto* const formats = new std::map<std::string, RecordFormat>;
  return *formats;
}

}  // namespace

absl::Status RecordReader::Skip(int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    MR_ASSIGN_OR_RETURN(const std::optional<Row> row, Next());
    if (!row.has_value()) {
      return absl::DataLossError(absl::StrCat(
          "the file ends ", count - i, " records before the one looked for"));
    }
  }
  return absl::OkStatus();
}

absl::Status RegisterRecordFormat(const std::string& name,
                                  RecordFormat format) {
  if (name.empty()) {
    return absl::InvalidArgumentError("a record format needs a name");
  }
  if (format.open == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "record format \"", name, "\" has no function that opens a file"));
  }
  const absl::MutexLock lock(&mu);
  if (!Formats().emplace(name, std::move(format)).second) {
    return absl::AlreadyExistsError(
        absl::StrCat("there is a record format \"", name,
                     "\" already; choose another name"));
  }
  return absl::OkStatus();
}

absl::StatusOr<RecordFormat> FindRecordFormat(const std::string& name) {
  const absl::MutexLock lock(&mu);
  const auto found = Formats().find(name);
  if (found != Formats().end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, format] : Formats()) names.push_back(known);
  return absl::NotFoundError(absl::StrCat(
      "this program has no record format \"", name,
      "\"; it has: ", names.empty() ? "none" : absl::StrJoin(names, ", "),
      ". MINIRAY_RECORD_READER makes one known"));
}

namespace internal {

bool RegisterRecordFormatOrDie(const std::string& name, RecordFormat format) {
  const absl::Status status = RegisterRecordFormat(name, std::move(format));
  LOG_IF(FATAL, !status.ok()) << status;
  return true;
}

}  // namespace internal
}  // namespace miniray::train
