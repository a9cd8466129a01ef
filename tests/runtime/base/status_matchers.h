// GoogleMock matchers for absl::Status and absl::StatusOr:
//   EXPECT_THAT(ReadFile(path), StatusIs(absl::StatusCode::kNotFound,
//                                        HasSubstr(path)));
//   EXPECT_THAT(WriteFile(path), IsOk());

#ifndef MINIRAY_TESTS_RUNTIME_BASE_STATUS_MATCHERS_H_
#define MINIRAY_TESTS_RUNTIME_BASE_STATUS_MATCHERS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace internal_testing {

inline const absl::Status& StatusOf(const absl::Status& status) {
  return status;
}
template <class T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

}  // namespace internal_testing

MATCHER(IsOk, negation ? "is an error" : "is OK") {
  *result_listener << internal_testing::StatusOf(arg).ToString();
  return arg.ok();
}

// Of a StatusOr.
MATCHER_P(IsOkAndHolds, value,
          absl::StrCat("is OK and is ", ::testing::PrintToString(value))) {
  if (!arg.ok()) {
    *result_listener << arg.status();
    return false;
  }
  return *arg == value;
}

MATCHER_P(StatusIs, code, "has the code " + absl::StatusCodeToString(code)) {
  *result_listener << internal_testing::StatusOf(arg).ToString();
  return internal_testing::StatusOf(arg).code() == code;
}

MATCHER_P2(StatusIs, code, message_matcher,
           "has the code " + absl::StatusCodeToString(code) +
               " and a message that " +
               ::testing::DescribeMatcher<std::string>(message_matcher)) {
  const absl::Status& status = internal_testing::StatusOf(arg);
  *result_listener << status.ToString();
  return status.code() == code &&
         ::testing::Matches(message_matcher)(std::string(status.message()));
}

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_BASE_STATUS_MATCHERS_H_
