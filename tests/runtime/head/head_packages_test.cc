// Packages at a head's service: as they come, break off, are damaged and leave.

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/head/head_service_testutil.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using HeadPackagesTest = HeadServiceTest;

TEST_F(HeadPackagesTest, PackagesComeBackWhole) {
  v1::HasPackageRequest has;
  has.set_package_id(package_id_);
  v1::HasPackageResponse present;
  ASSERT_THAT(Call(&v1::Head::Stub::HasPackage, has, &present), IsOk());
  EXPECT_FALSE(present.present());
  std::string bytes;
  EXPECT_THAT(Download(package_id_, token_, &bytes),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(package_id_)));
  for (int i = 0; i < 2; ++i) {
    ASSERT_THAT(Upload(package_id_, package_, token_), IsOk());
  }
  ASSERT_THAT(Call(&v1::Head::Stub::HasPackage, has, &present), IsOk());
  EXPECT_TRUE(present.present());
  ASSERT_THAT(Download(package_id_, token_, &bytes), IsOk());
  EXPECT_TRUE(bytes == package_);
  EXPECT_THAT(Packages(), ElementsAre(package_id_));
}

TEST_F(HeadPackagesTest, DamagedUploadsLeaveNothing) {
  EXPECT_THAT(Upload(package_id_, package_ + "x", token_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("damaged")));
  EXPECT_THAT(Upload(package_id_, package_.substr(1), token_),
              StatusIs(absl::StatusCode::kDataLoss));
  for (const char* id : {"", "../x", "../../../etc/cron.d/x"}) {
    EXPECT_THAT(Upload(id, package_, token_),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(Upload(package_id_, "", token_),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Packages(), IsEmpty());
}

TEST_F(HeadPackagesTest, AnUploadThatBreaksOffLeavesNothing) {
  const auto context = Context(token_);
  v1::PutPackageResponse response;
  auto writer = stub_->PutPackage(context.get(), &response);
  v1::PackageChunk chunk;
  chunk.set_package_id(package_id_);
  chunk.set_data(package_.substr(0, 1 << 20));
  ASSERT_TRUE(writer->Write(chunk));
  ASSERT_TRUE(Eventually([&](const auto&) { return !Packages().empty(); }));
  context->TryCancel();
  EXPECT_FALSE(writer->Finish().ok());
  EXPECT_TRUE(Eventually([&](const auto&) { return Packages().empty(); }));
}

TEST_F(HeadPackagesTest, OnlyPackagesCanBeFetched) {
  std::string bytes;
  for (const char* id : {"", "..", "../../package", "/etc/passwd"}) {
    EXPECT_THAT(Download(id, token_, &bytes),
                StatusIs(absl::StatusCode::kNotFound));
  }
  EXPECT_THAT(bytes, IsEmpty());
}

TEST_F(HeadPackagesTest, WhatAKilledHeadHasHalfReceivedIsRemoved) {
  ASSERT_THAT(Upload(package_id_, package_, token_), IsOk());
  head_->Shutdown();
  head_.reset();
  const std::string packages = folder_ / "head/packages/";
  ASSERT_THAT(WriteFileAtomically(
                  absl::StrCat(packages, package_id_, ".tmp-0123"), "half"),
              IsOk());
  StartHead({});
  EXPECT_THAT(Packages(), ElementsAre(package_id_));
}

}  // namespace
}  // namespace miniray
