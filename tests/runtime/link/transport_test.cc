#include "runtime/link/transport.h"

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TransportTest, TheVariableSaysAutoTcpOrGrpc) {
  unsetenv(kTransportVariable);
  EXPECT_THAT(TransportFromEnvironment(), IsOkAndHolds(Transport::kAuto));
  for (const auto& [text, transport] :
       {std::pair("auto", Transport::kAuto), std::pair("", Transport::kAuto),
        std::pair("tcp", Transport::kTcp),
        std::pair("grpc", Transport::kGrpc)}) {
    setenv(kTransportVariable, text, 1);
    EXPECT_THAT(TransportFromEnvironment(), IsOkAndHolds(transport)) << text;
  }
  setenv(kTransportVariable, "unix", 1);
  EXPECT_THAT(TransportFromEnvironment(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("MINIRAY_LOCAL_TRANSPORT"),
                             HasSubstr("'unix'"), HasSubstr("'tcp'"),
                             HasSubstr("'grpc'"), HasSubstr("'auto'"))));
  unsetenv(kTransportVariable);
}

}  // namespace
}  // namespace internal
}  // namespace miniray
