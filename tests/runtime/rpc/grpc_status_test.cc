#include "runtime/rpc/grpc_status.h"

#include <climits>
#include <string>

#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

TEST(GrpcStatusTest, EveryCodeThereAndBack) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "text");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
    EXPECT_EQ(FromProto(ToProto(status)), status);
  }
  EXPECT_EQ(ToGrpcStatus(absl::NotFoundError("x")).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
}

TEST(GrpcStatusTest, AnUnknownCodeIsUnknown) {
  for (int code : {-1, 17, 99, INT_MAX, INT_MIN}) {
    v1::Status proto;
    proto.set_code(code);
    proto.set_message("what");
    EXPECT_THAT(FromProto(proto), StatusIs(absl::StatusCode::kUnknown, "what"));
  }
}

TEST(GrpcStatusTest, TextThatIsNotUtf8CanBeSent) {
  const v1::Status proto = ToProto(absl::InternalError("caf\xe9"));
  v1::Status parsed;
  ASSERT_TRUE(parsed.ParseFromString(proto.SerializeAsString()));
  EXPECT_EQ(parsed.message(), "caf\xef\xbf\xbd");
}

}  // namespace
}  // namespace miniray
