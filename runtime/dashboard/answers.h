// What handlers read from requests, and how they answer.

#ifndef MINIRAY_RUNTIME_DASHBOARD_ANSWERS_H_
#define MINIRAY_RUNTIME_DASHBOARD_ANSWERS_H_

#include <httplib.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace miniray {

inline constexpr char kJsonType[] = "application/json";
inline constexpr char kTextType[] = "text/plain; charset=utf-8";
// Why there is nothing under a path.
inline constexpr char kNoRuns[] = "this head keeps no runs";

// {"error": why}
void Refuse(httplib::Response& response, int code, absl::string_view why);
// With the code that fits: 400 INVALID_ARGUMENT, 404 NOT_FOUND, 409
// FAILED_PRECONDITION and ALREADY_EXISTS, 503 UNAVAILABLE and
// RESOURCE_EXHAUSTED, 504 DEADLINE_EXCEEDED, else 500.
void Refuse(httplib::Response& response, const absl::Status& status);

// Sends `body` as it is: to compress it would take longer than to send it over
// loopback, and a busy machine has better to do.
void Answer(httplib::Response& response, std::string body, const char* type);
// The same with bytes that stay there.
void AnswerStatic(httplib::Response& response, absl::string_view bytes,
                  const char* type);
// JSON, or the error.
void Answer(httplib::Response& response, absl::StatusOr<std::string> json);

void ReplaceHeader(httplib::Response& response, const char* name,
                   const std::string& value);

// The parameter `name` as a number from `min` to `max`; `otherwise` if it is
// not there. Errors: INVALID_ARGUMENT, says what was expected.
absl::StatusOr<int64_t> IntParam(const httplib::Request& request,
                                 const char* name, int64_t min, int64_t max,
                                 int64_t otherwise);
// 0 or 1; false if it is not there.
absl::StatusOr<bool> BoolParam(const httplib::Request& request,
                               const char* name);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_DASHBOARD_ANSWERS_H_
