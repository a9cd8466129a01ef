#include "runtime/packages/package_store.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// SHA-256 of "abc" (FIPS 180-4) and of nothing.
constexpr char kAbc[] =
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr char kEmpty[] =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

class PackageStoreTest : public ::testing::Test {
 protected:
  absl::Status Store(const std::string& id, const std::string& bytes) {
    auto writer = store_.Write(id);
    if (!writer.ok()) return writer.status();
    absl::Status status = (*writer)->Append(bytes);
    return status.ok() ? (*writer)->Commit() : status;
  }

  TempFolder folder_;
  PackageStore store_{folder_.path()};
};

TEST_F(PackageStoreTest, ACommittedPackageIsThereAndExecutable) {
  EXPECT_FALSE(store_.Has(kAbc));
  auto writer = store_.Write(kAbc);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT((*writer)->Append("a"), IsOk());
  ASSERT_THAT((*writer)->Append(""), IsOk());
  ASSERT_THAT((*writer)->Append("bc"), IsOk());
  EXPECT_FALSE(store_.Has(kAbc));
  ASSERT_THAT((*writer)->Commit(), IsOk());
  EXPECT_TRUE(store_.Has(kAbc));
  EXPECT_EQ(store_.PathOf(kAbc), folder_ / kAbc);
  EXPECT_EQ(ReadFile(store_.PathOf(kAbc)).value(), "abc");
  struct stat st;
  ASSERT_EQ(stat(store_.PathOf(kAbc).c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
  writer->reset();
  EXPECT_THAT(folder_.List(), ElementsAre(kAbc));
}

TEST_F(PackageStoreTest, APackageOfNoBytes) {
  EXPECT_THAT(Store(kEmpty, ""), IsOk());
  EXPECT_TRUE(store_.Has(kEmpty));
}

TEST_F(PackageStoreTest, TheFolderIsMadeForThisUserAlone) {
  PackageStore store(folder_ / "a/b");
  EXPECT_FALSE(store.Has(kAbc));
  ASSERT_THAT(store.Write(kAbc), IsOk());
  struct stat st;
  ASSERT_EQ(stat((folder_ / "a/b").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
}

TEST_F(PackageStoreTest, WhatIsNoHashIsNoId) {
  const std::string good(kAbc);
  for (const std::string& id :
       {std::string(), std::string("../x"), std::string("."),
        std::string("/etc/passwd"), good.substr(1), good + "0",
        "../" + good.substr(3), good.substr(0, 63) + "/",
        good.substr(0, 63) + "G", std::string(64, 'A'), std::string(64, '.'),
        std::string(64, '\0'), good.substr(0, 63) + "\n"}) {
    EXPECT_FALSE(PackageStore::IsValidId(id)) << id;
    EXPECT_FALSE(store_.Has(id)) << id;
    EXPECT_THAT(store_.Write(id),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(id), HasSubstr("SHA-256"))));
  }
  EXPECT_TRUE(PackageStore::IsValidId(good));
  EXPECT_THAT(folder_.List(), IsEmpty());
}

TEST_F(PackageStoreTest, DamagedBytesAreRefusedAndRemoved) {
  EXPECT_THAT(Store(kAbc, "abd"),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(kAbc), HasSubstr("damaged"))));
  EXPECT_THAT(Store(kAbc, "ab"), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_FALSE(store_.Has(kAbc));
  EXPECT_THAT(folder_.List(), IsEmpty());
}

TEST_F(PackageStoreTest, APackageThatWasDamagedOnDiskIsFoundAndRemoved) {
  ASSERT_THAT(Store(kAbc, "abc"), IsOk());
  EXPECT_THAT(store_.Check(kAbc), IsOk());
  EXPECT_TRUE(store_.Has(kAbc));
  std::ofstream(store_.PathOf(kAbc), std::ios::binary) << "abd";
  EXPECT_THAT(store_.Check(kAbc),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("removed")));
  EXPECT_FALSE(store_.Has(kAbc));
  EXPECT_THAT(store_.Check(kAbc), IsOk());  // Nothing to look at.
  EXPECT_THAT(Store(kAbc, "abc"), IsOk());
}

TEST_F(PackageStoreTest, WhatWasThereASecondAgoIsNotLookedForAgain) {
  ASSERT_THAT(Store(kAbc, "abc"), IsOk());
  const absl::Time start = absl::Now();
  EXPECT_TRUE(store_.HadLately(kAbc));
  ASSERT_EQ(unlink(store_.PathOf(kAbc).c_str()), 0);
  EXPECT_FALSE(store_.Has(kAbc));
  EXPECT_TRUE(store_.HadLately(kAbc));
  while (store_.HadLately(kAbc)) {
    ASSERT_LT(absl::Now() - start, absl::Seconds(60));
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_GE(absl::Now() - start, absl::Seconds(1));
}

TEST_F(PackageStoreTest, WhatItHasRemovedIsNotSeenFromLately) {
  EXPECT_FALSE(store_.HadLately("../" + folder_.path()));
  EXPECT_FALSE(store_.HadLately(kAbc));
  ASSERT_THAT(Store(kAbc, "abc"), IsOk());
  EXPECT_TRUE(store_.HadLately(kAbc));
  EXPECT_FALSE(store_.HadLately(kEmpty));
  store_.MakeRoom(0, {}, absl::InfiniteFuture());
  EXPECT_FALSE(store_.HadLately(kAbc));

  ASSERT_THAT(Store(kAbc, "abc"), IsOk());
  EXPECT_TRUE(store_.HadLately(kAbc));
  std::ofstream(store_.PathOf(kAbc), std::ios::binary) << "abd";
  EXPECT_THAT(store_.Check(kAbc), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_FALSE(store_.HadLately(kAbc));
}

TEST_F(PackageStoreTest, AnUnfinishedWriterLeavesNothing) {
  {
    auto writer = store_.Write(kAbc);
    ASSERT_THAT(writer, IsOk());
    ASSERT_THAT((*writer)->Append("abc"), IsOk());
    EXPECT_EQ(folder_.List().size(), 1u);
  }
  EXPECT_THAT(folder_.List(), IsEmpty());
}

TEST_F(PackageStoreTest, TwoMayWriteTheSamePackage) {
  auto first = store_.Write(kAbc);
  auto second = store_.Write(kAbc);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  ASSERT_THAT((*first)->Append("ab"), IsOk());
  ASSERT_THAT((*second)->Append("abc"), IsOk());
  ASSERT_THAT((*first)->Append("c"), IsOk());
  EXPECT_THAT((*second)->Commit(), IsOk());
  EXPECT_THAT((*first)->Commit(), IsOk());
  EXPECT_THAT(folder_.List(), ElementsAre(kAbc));
  // And again, over the one that is there.
  EXPECT_THAT(Store(kAbc, "abc"), IsOk());
  EXPECT_THAT(folder_.List(), ElementsAre(kAbc));
}

TEST_F(PackageStoreTest, AFullDiskLeavesNothing) {
  struct sigaction ignore = {}, old;
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(sigaction(SIGXFSZ, &ignore, &old), 0);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low = {2, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  EXPECT_THAT(Store(kAbc, "abc"), StatusIs(absl::StatusCode::kResourceExhausted,
                                           HasSubstr("write package")));
  setrlimit(RLIMIT_FSIZE, &before);
  sigaction(SIGXFSZ, &old, nullptr);
  EXPECT_THAT(folder_.List(), IsEmpty());
}

TEST_F(PackageStoreTest, AFailedRenameLeavesNothing) {
  ASSERT_EQ(mkdir(store_.PathOf(kAbc).c_str(), 0700), 0);
  EXPECT_THAT(Store(kAbc, "abc"), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr(store_.PathOf(kAbc))));
  EXPECT_THAT(folder_.List(), ElementsAre(kAbc));
  EXPECT_FALSE(store_.Has(kAbc));  // A folder is no package.
}

TEST_F(PackageStoreTest, AFolderThatCannotBeMade) {
  ASSERT_THAT(WriteFileAtomically(folder_ / "file", "x"), IsOk());
  PackageStore store(folder_ / "file/packages");
  EXPECT_THAT(store.Write(kAbc), StatusIs(absl::StatusCode::kNotFound,
                                          HasSubstr("file/packages")));
}

TEST_F(PackageStoreTest, AFileThatCannotBeRunIsNoPackage) {
  ASSERT_THAT(WriteFileAtomically(store_.PathOf(kAbc), "abc", 0600), IsOk());
  EXPECT_FALSE(store_.Has(kAbc));
}

TEST(PackageListTest, TellsWhatIsThereAndWhenItWasWanted) {
  const TempFolder folder;
  const PackageStore store(folder.path());
  EXPECT_TRUE(store.List().empty());
  const std::string id(64, 'a');
  ASSERT_THAT(WriteFileAtomically(folder / id, "text", 0700), IsOk());
  ASSERT_THAT(WriteFileAtomically(folder / (id + ".tmp-1"), "x", 0700), IsOk());
  ASSERT_THAT(WriteFileAtomically(folder / "other", "x", 0700), IsOk());
  const timespec old[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (folder / id).c_str(), old, 0), 0);
  ASSERT_EQ(store.List().size(), 1);
  EXPECT_EQ(store.List()[0].package_id, id);
  EXPECT_EQ(store.List()[0].bytes, 4);
  EXPECT_EQ(store.List()[0].last_used, absl::FromUnixSeconds(1000));
  store.MarkUsed(id);
  store.MarkUsed("../other");
  store.MarkUsed(std::string(64, 'b'));
  EXPECT_GT(store.List()[0].last_used, absl::FromUnixSeconds(1000));
}

}  // namespace
}  // namespace miniray
