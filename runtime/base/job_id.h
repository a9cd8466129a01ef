// What a job may be called.

#ifndef MINIRAY_RUNTIME_BASE_JOB_ID_H_
#define MINIRAY_RUNTIME_BASE_JOB_ID_H_

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace miniray {

// Submitted jobs give their id to a folder and to log files. Errors:
// INVALID_ARGUMENT, says what is allowed.
inline absl::Status CheckJobId(absl::string_view job_id) {
  if (!job_id.empty() && job_id.size() <= 64 &&
      absl::ascii_isalnum(static_cast<unsigned char>(job_id[0])) &&
      std::all_of(job_id.begin(), job_id.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
               c == '_' || c == '-';
      })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", absl::CHexEscape(job_id),
                   "' cannot name a job: 1 to 64 letters, digits, '.', '_' and "
                   "'-', the first a letter or digit"));
}

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_JOB_ID_H_
