// Early returns for absl::Status and absl::StatusOr.
//
//   MR_RETURN_IF_ERROR(WriteFile(path, text));
//   MR_ASSIGN_OR_RETURN(std::string text, ReadFile(path));

#ifndef MINIRAY_RUNTIME_BASE_STATUS_MACROS_H_
#define MINIRAY_RUNTIME_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace miniray {

// Returns `status` with "`context`: " before its message; OK stays OK.
inline absl::Status Annotate(const absl::Status& status,
                             absl::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(context, ": ", status.message()));
}

}  // namespace miniray

#define MR_RETURN_IF_ERROR(expr)                              \
  do {                                                        \
    if (::absl::Status mr_status_ = (expr); !mr_status_.ok()) \
      return mr_status_;                                      \
  } while (false)

#define MR_ASSIGN_OR_RETURN(lhs, expr) \
  MR_ASSIGN_OR_RETURN_IMPL_(MR_CONCAT_(mr_status_or_, __LINE__), lhs, expr)

#define MR_ASSIGN_OR_RETURN_IMPL_(name, lhs, expr) \
  auto name = (expr);                              \
  if (!name.ok()) return name.status();            \
  lhs = *std::move(name)

#define MR_CONCAT_(a, b) MR_CONCAT_IMPL_(a, b)
#define MR_CONCAT_IMPL_(a, b) a##b

#endif  // MINIRAY_RUNTIME_BASE_STATUS_MACROS_H_
