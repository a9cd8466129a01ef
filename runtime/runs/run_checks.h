// What may be told of a run: who reports it drops what may not be, and the head
// refuses it.

#ifndef MINIRAY_RUNTIME_RUNS_RUN_CHECKS_H_
#define MINIRAY_RUNTIME_RUNS_RUN_CHECKS_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/run.pb.h"

namespace miniray {

inline constexpr size_t kMaxImageBytes = size_t{2} << 20;
// Of a request; more events go into the next one.
inline constexpr size_t kMaxReportBytes = size_t{3} << 20;
// Of a text that says what went wrong, or where something lies.
inline constexpr size_t kMaxRunTextBytes = 4096;
// Of all other texts.
inline constexpr size_t kMaxRunNameBytes = 256;
// Ranks are below.
inline constexpr int kMaxRunWorkers = 1000000;

// Errors: INVALID_ARGUMENT, says what is allowed.
absl::Status CheckRunId(absl::string_view run_id);

// `name` if CheckRunId takes it. Else the nearest to it: other characters
// become '-', and at the end come '-' and eight digits that hang on all of the
// name, so that names that differ are runs that do. The same everywhere and
// always. Empty only if `name` is.
std::string RunIdFrom(absl::string_view name);

// INVALID_ARGUMENT with the field and what it may be.
absl::Status CheckRunEvent(const v1::RunEvent& event);

// The same for all of a request, and the head's other fields.
absl::Status CheckReport(const v1::ReportRunRequest& request);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RUNS_RUN_CHECKS_H_
