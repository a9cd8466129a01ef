// The objects of a store without gRPC, and the files that they lie in.

#include "runtime/objects/object_table.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/objects/memory_file.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

bool Never() { return false; }

ObjectTable::Arrival Four(std::string id) {
  ObjectTable::Arrival arrival;
  arrival.id = std::move(id);
  arrival.total_bytes = 4;
  return arrival;
}

TEST(ObjectTableTest, AnObjectFreedWhileItComesDoesNotStay) {
  ObjectTable table({.max_bytes = 1000, .max_objects = 10});
  auto incoming = table.Begin(Four("o"), &Never);
  ASSERT_THAT(incoming, IsOk());
  EXPECT_THAT(table.Begin(Four("o"), &Never),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(table.stats().bytes, 4);
  ASSERT_THAT((*incoming)->file->Append("data"), IsOk());
  table.Free({"o"});
  EXPECT_THAT(table.Finish(*std::move(incoming)),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(table.stats().bytes, 0);
  EXPECT_EQ(table.stats().objects, 0);
}

TEST(ObjectTableTest, CopiesOfResultsGoWithTheirJob) {
  ObjectTable table({.max_bytes = 1000, .max_objects = 10});
  const auto take = [&](const std::string& id, const std::string& job) {
    ObjectTable::Arrival arrival = Four(id);
    arrival.job_id = job;
    auto incoming = *table.Begin(arrival, &Never);
    EXPECT_THAT(incoming->file->Append("data"), IsOk());
    EXPECT_THAT(table.Finish(std::move(incoming)), IsOk());
  };
  take("result", "j");
  take("put", "");
  EXPECT_THAT(table.Jobs(), testing::ElementsAre("j"));
  table.EndJob("");
  EXPECT_EQ(table.stats().objects, 2);
  table.EndJob("j");
  EXPECT_EQ(table.stats().objects, 1);
  EXPECT_THAT(table.Jobs(), testing::IsEmpty());
}

TEST(MemoryFileTest, OnlySealedFilesOfTheRightSizeAreMapped) {
  auto file = MemoryFile::Create(10);
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT((*file)->Append("some bytes"), IsOk());
  const v1::SharedFile shared = (*file)->shared();
  EXPECT_THAT(MapFile(shared), StatusIs(absl::StatusCode::kFailedPrecondition));
  // Its owner reads it before: that does not forbid the seal.
  auto own = (*file)->Map();
  ASSERT_THAT(own, IsOk());
  ASSERT_THAT((*file)->Seal(), IsOk());
  EXPECT_FALSE((*file)->Append("x").ok());
  auto mapped = MapFile(shared);
  ASSERT_THAT(mapped, IsOk());
  EXPECT_EQ(*mapped, "some bytes");
  v1::SharedFile wrong = shared;
  wrong.set_size(11);
  EXPECT_THAT(MapFile(wrong), StatusIs(absl::StatusCode::kFailedPrecondition));
  wrong = shared;
  wrong.set_inode(shared.inode() + 1);
  EXPECT_THAT(MapFile(wrong), StatusIs(absl::StatusCode::kNotFound));
  wrong = shared;
  wrong.set_fd(9999);
  EXPECT_THAT(MapFile(wrong), StatusIs(absl::StatusCode::kNotFound));
  wrong.set_fd(0);  // Whatever that is.
  EXPECT_FALSE(MapFile(wrong).ok());
  wrong = shared;
  wrong.set_machine("");
  EXPECT_THAT(MapFile(wrong), StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace miniray
