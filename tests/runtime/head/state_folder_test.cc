#include "runtime/head/state_folder.h"

#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class StateFolderTest : public ::testing::Test {
 protected:
  void Put(const std::string& name, const std::string& text = "x") {
    ASSERT_THAT(WriteFileAtomically(path_ + "/" + name, text), IsOk());
  }
  bool Has(const std::string& name) {
    return std::filesystem::exists(path_ + "/" + name);
  }

  TempFolder temp_;
  const std::string path_ = temp_ / "deep/head-1";
};

TEST_F(StateFolderTest, ANewFolderHasNothingToGoOnWith) {
  const auto folder = StateFolder::Open(path_);
  ASSERT_THAT(folder, IsOk());
  EXPECT_THAT(StateFolder::Recall(path_),
              StatusIs(absl::StatusCode::kNotFound));
  struct stat st;
  ASSERT_EQ(stat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700);
}

TEST_F(StateFolderTest, TokenAndPortAreRememberedForThisUserAlone) {
  auto folder = StateFolder::Open(path_);
  ASSERT_THAT(folder, IsOk());
  ASSERT_THAT((*folder)->Remember({.token = "secret", .port = 6380}), IsOk());
  const auto what = StateFolder::Recall(path_);
  ASSERT_THAT(what, IsOk());
  EXPECT_EQ(what->token, "secret");
  EXPECT_EQ(what->port, 6380);
  struct stat st;
  ASSERT_EQ(stat((path_ + "/token").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600);

  ASSERT_THAT((*folder)->Remember({.token = "", .port = 6381}), IsOk());
  EXPECT_EQ(StateFolder::Recall(path_)->token, "");
  EXPECT_EQ(StateFolder::Recall(path_)->port, 6381);
}

TEST_F(StateFolderTest, WhereItListenedAndItsCertificatesAreRemembered) {
  auto folder = StateFolder::Open(path_);
  ASSERT_THAT(folder, IsOk());
  ASSERT_THAT(
      (*folder)->Remember(
          {.port = 6380, .host = "0.0.0.0", .tls_dir = "/home/me/my certs"}),
      IsOk());
  EXPECT_EQ(StateFolder::Recall(path_)->host, "0.0.0.0");
  EXPECT_EQ(StateFolder::Recall(path_)->tls_dir, "/home/me/my certs");
  ASSERT_THAT((*folder)->Remember({.port = 6380, .host = "::1"}), IsOk());
  EXPECT_EQ(StateFolder::Recall(path_)->host, "::1");
  EXPECT_EQ(StateFolder::Recall(path_)->tls_dir, "");
}

TEST_F(StateFolderTest, WhatAnEarlierVersionLeftSaysNothingOfTheHost) {
  ASSERT_THAT((*StateFolder::Open(path_))->Remember({.port = 1, .host = "::1"}),
              IsOk());
  std::filesystem::remove(path_ + "/host");
  Put("port", "6380");
  ASSERT_THAT(StateFolder::Recall(path_), IsOk());
  EXPECT_EQ(StateFolder::Recall(path_)->port, 6380);
  EXPECT_EQ(StateFolder::Recall(path_)->host, "");
}

TEST_F(StateFolderTest, WhatIsNotRememberedLeavesNothing) {
  for (const bool forget : {false, true}) {
    {
      auto folder = StateFolder::Open(path_);
      ASSERT_THAT(folder, IsOk());
      if (forget) {
        ASSERT_THAT((*folder)->Remember({.token = "secret", .port = 1}),
                    IsOk());
      }
      Put("head.db");
      ASSERT_THAT(MakeDirectories((*folder)->packages()), IsOk());
      if (forget) (*folder)->Forget();
    }
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
}

TEST_F(StateFolderTest, WhatWasThereBeforeStays) {
  ASSERT_THAT(MakeDirectories(path_), IsOk());
  Put("mine");
  { ASSERT_THAT(StateFolder::Open(path_), IsOk()); }
  EXPECT_TRUE(Has("mine"));
  EXPECT_FALSE(Has("lock"));

  // A cluster to go on with.
  ASSERT_THAT((*StateFolder::Open(path_))->Remember({.port = 1}), IsOk());
  Put("head.db");
  {
    auto folder = StateFolder::Open(path_);
    ASSERT_THAT(folder, IsOk());
    ASSERT_THAT((*folder)->Remember({.port = 1}), IsOk());
    (*folder)->Forget();
  }
  EXPECT_TRUE(Has("head.db"));
  EXPECT_THAT(StateFolder::Recall(path_), IsOk());
}

TEST_F(StateFolderTest, AKilledHeadsClusterIsEndedByOthers) {
  const auto in_use = [] {
    return StatusIs(absl::StatusCode::kFailedPrecondition,
                    HasSubstr("another head uses"));
  };
  {
    auto folder = StateFolder::Open(path_);
    ASSERT_THAT(folder, IsOk());
    ASSERT_THAT((*folder)->Remember({.port = 1}), IsOk());
    EXPECT_THAT(StateFolder::Finish(path_), in_use());
    EXPECT_THAT(StateFolder::Remove(path_), in_use());
    EXPECT_THAT(StateFolder::Recall(path_), IsOk());
  }
  EXPECT_THAT(StateFolder::Finish(path_), IsOk());
  EXPECT_THAT(StateFolder::Recall(path_),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(StateFolder::Remove(path_), IsOk());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(StateFolderTest, OnlyOneHeadUsesIt) {
  auto folder = StateFolder::Open(path_);
  ASSERT_THAT(folder, IsOk());
  EXPECT_TRUE(StateFolder::InUse(path_));
  EXPECT_THAT(StateFolder::Open(path_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("another head uses"),
                             HasSubstr("--state_dir"))));
  folder->reset();
  EXPECT_FALSE(StateFolder::InUse(path_));
  EXPECT_FALSE(StateFolder::InUse(temp_ / "nowhere"));
  EXPECT_THAT(StateFolder::Open(path_), IsOk());
}

TEST_F(StateFolderTest, WhatAKilledHeadLeftStays) {
  ASSERT_THAT((*StateFolder::Open(path_))->Remember({.port = 1}), IsOk());
  Put("head.db");
  ASSERT_THAT(StateFolder::Open(path_), IsOk());
  EXPECT_TRUE(Has("head.db"));
  EXPECT_THAT(StateFolder::Recall(path_), IsOk());
}

TEST_F(StateFolderTest, OfAFinishedClusterOnlyPackagesStay) {
  {
    auto folder = StateFolder::Open(path_);
    ASSERT_THAT(folder, IsOk());
    ASSERT_THAT((*folder)->Remember({.token = "secret", .port = 1}), IsOk());
    Put("head.db");
    Put("head.db-wal");
    ASSERT_THAT(MakeDirectories((*folder)->states()), IsOk());
    ASSERT_THAT(MakeDirectories((*folder)->packages()), IsOk());
    Put("states/a");
    Put("packages/p");
    ASSERT_THAT((*folder)->Finish(), IsOk());
    EXPECT_THAT(StateFolder::Recall(path_),
                StatusIs(absl::StatusCode::kNotFound));
    EXPECT_TRUE(Has("head.db"));
  }
  ASSERT_THAT(StateFolder::Open(path_), IsOk());
  for (const char* name :
       {"head.db", "head.db-wal", "states", "token", "port", "finished"}) {
    EXPECT_FALSE(Has(name)) << name;
  }
  EXPECT_TRUE(Has("packages/p"));
}

TEST_F(StateFolderTest, ADatabaseThatBecameEmptyIsAnError) {
  ASSERT_THAT((*StateFolder::Open(path_))->Remember({.port = 1}), IsOk());
  Put("head.db", "");
  EXPECT_THAT(
      StateFolder::Open(path_),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path_ + "/head.db")));
}

TEST_F(StateFolderTest, APortThatIsNoneIsAnError) {
  ASSERT_THAT(MakeDirectories(path_), IsOk());
  Put("port", "many");
  EXPECT_THAT(StateFolder::Recall(path_),
              StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace miniray
