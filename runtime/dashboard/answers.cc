#include "runtime/dashboard/answers.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"

namespace miniray {
namespace {

int CodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
      return 409;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

// owner: keeps the bytes as long as the answer lives.
void Provide(httplib::Response& response, absl::string_view bytes,
             std::shared_ptr<const void> owner, const char* type) {
  if (bytes.empty()) return response.set_content("", type);
  response.set_content_provider(
      bytes.size(), type,
      [bytes, owner = std::move(owner)](size_t offset, size_t length,
                                        httplib::DataSink& sink) {
        if (offset >= bytes.size()) return false;
        const absl::string_view part = bytes.substr(offset, length);
        return sink.write(part.data(), part.size());
      });
}

}  // namespace

void Refuse(httplib::Response& response, int code, absl::string_view why) {
  response.status = code;
  response.set_content(nlohmann::json{{"error", ToUtf8(why)}}.dump() + "\n",
                       kJsonType);
}

void Refuse(httplib::Response& response, const absl::Status& status) {
  const int code = CodeFor(status);
  if (code == 503) response.set_header("Retry-After", "1");
  Refuse(response, code, status.message());
}

void Answer(httplib::Response& response, std::string body, const char* type) {
  const auto kept = std::make_shared<const std::string>(std::move(body));
  Provide(response, *kept, kept, type);
}

void AnswerStatic(httplib::Response& response, absl::string_view bytes,
                  const char* type) {
  Provide(response, bytes, nullptr, type);
}

void Answer(httplib::Response& response, absl::StatusOr<std::string> json) {
  if (!json.ok()) return Refuse(response, json.status());
  Answer(response, *std::move(json), kJsonType);
}

void ReplaceHeader(httplib::Response& response, const char* name,
                   const std::string& value) {
  response.headers.erase(name);
  response.set_header(name, value);
}

absl::StatusOr<int64_t> IntParam(const httplib::Request& request,
                                 const char* name, int64_t min, int64_t max,
                                 int64_t otherwise) {
  if (!request.has_param(name)) return otherwise;
  const std::string text = request.get_param_value(name);
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < min || value > max) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, "='", absl::CHexEscape(text),
                     "': expected a number from ", min, " to ", max));
  }
  return value;
}

absl::StatusOr<bool> BoolParam(const httplib::Request& request,
                               const char* name) {
  MR_ASSIGN_OR_RETURN(const int64_t value, IntParam(request, name, 0, 1, 0));
  return value == 1;
}

}  // namespace miniray
