#include "runtime/head/actor_state_store.h"

#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
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

constexpr int64_t kMaxBytes = 1000;

class ActorStateStoreTest : public ::testing::Test {
 protected:
  std::vector<std::string> Files() {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder_ / "states", error)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TempFolder folder_;
  // The present start of each actor.
  std::map<std::string, int32_t> present_ = {{"a", 0}, {"b", 0}};
  ActorStateStore store_{
      folder_ / "states", kMaxBytes,
      [this](const std::string& actor, int32_t incarnation) -> absl::Status {
        const auto it = present_.find(actor);
        if (it == present_.end()) return absl::NotFoundError("unknown");
        if (it->second != incarnation) {
          return absl::FailedPreconditionError("not present");
        }
        return absl::OkStatus();
      }};
};

TEST_F(ActorStateStoreTest, ASavedStateComesBackByteForByte) {
  const std::string bytes("\0\xff state\n", 9);
  ASSERT_THAT(store_.Save("a", 0, "older"), IsOk());
  ASSERT_THAT(store_.Save("a", 0, bytes), IsOk());
  present_["a"] = 1;
  EXPECT_THAT(store_.Load("a", 1), IsOkAndHolds(bytes));
  EXPECT_THAT(Files(), ElementsAre("a"));
}

TEST_F(ActorStateStoreTest, AnEmptyStateIsAState) {
  ASSERT_THAT(store_.Save("a", 0, ""), IsOk());
  EXPECT_THAT(store_.Load("a", 0), IsOkAndHolds(""));
}

TEST_F(ActorStateStoreTest, WithoutAStateItIsNotFound) {
  EXPECT_THAT(store_.Load("a", 0), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ActorStateStoreTest, AnotherHeadFindsTheState) {
  ASSERT_THAT(store_.Save("a", 0, "kept"), IsOk());
  ActorStateStore next(folder_ / "states", kMaxBytes,
                       [](const auto&, auto) { return absl::OkStatus(); });
  EXPECT_THAT(next.Load("a", 3), IsOkAndHolds("kept"));
}

TEST_F(ActorStateStoreTest, AProcessThatWasGivenUpIsRefused) {
  ASSERT_THAT(store_.Save("a", 0, "good"), IsOk());
  present_["a"] = 1;
  EXPECT_THAT(store_.Save("a", 0, "void"),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(store_.Load("a", 0),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(store_.Load("a", 1), IsOkAndHolds("good"));
}

TEST_F(ActorStateStoreTest, OnceASuccessorHasLoadedEarlierStartsAreVoid) {
  // Even if whoever knows the present start is late.
  ActorStateStore store(folder_ / "states", kMaxBytes,
                        [](const auto&, auto) { return absl::OkStatus(); });
  ASSERT_THAT(store.Save("a", 0, "good"), IsOk());
  ASSERT_THAT(store.Load("a", 1), IsOkAndHolds("good"));
  EXPECT_THAT(store.Save("a", 0, "void"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("started again (start 1)")));
  EXPECT_THAT(store.Save("a", 1, "better"), IsOk());
  EXPECT_THAT(store.Load("a", 1), IsOkAndHolds("better"));
}

TEST_F(ActorStateStoreTest, ATooLargeStateIsRefusedAndTheOldOneStays) {
  ASSERT_THAT(store_.Save("a", 0, std::string(kMaxBytes, 'x')), IsOk());
  EXPECT_THAT(store_.Save("a", 0, std::string(kMaxBytes + 1, 'y')),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("1001"), HasSubstr("1000"),
                             HasSubstr("--max_state_bytes"))));
  EXPECT_THAT(store_.Load("a", 0), IsOkAndHolds(std::string(kMaxBytes, 'x')));
}

TEST_F(ActorStateStoreTest, AnIdIsNoPath) {
  for (const std::string id : {"../a", "", ".", "a/b", "a b"}) {
    present_[id] = 0;
    EXPECT_THAT(store_.Save(id, 0, "x"),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << id;
    EXPECT_THAT(store_.Load(id, 0),
                StatusIs(absl::StatusCode::kInvalidArgument));
    store_.Remove(id);
  }
  const std::string long_id(101, 'a');
  present_[long_id] = 0;
  EXPECT_THAT(store_.Save(long_id, 0, "x"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ActorStateStoreTest, RemoveForgetsOneActor) {
  ASSERT_THAT(store_.Save("a", 0, "1"), IsOk());
  ASSERT_THAT(store_.Save("b", 0, "2"), IsOk());
  store_.Remove("a");
  store_.Remove("unknown");
  EXPECT_THAT(Files(), ElementsAre("b"));
  EXPECT_THAT(store_.Load("a", 0), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ActorStateStoreTest, KeepOnlyRemovesStrangersAndHalfWrittenFiles) {
  store_.KeepOnly({"a"});  // Without a folder.
  ASSERT_THAT(store_.Save("a", 0, "1"), IsOk());
  ASSERT_THAT(store_.Save("b", 0, "2"), IsOk());
  ASSERT_THAT(WriteFileAtomically(folder_ / "states/a.tmp-123", "half"),
              IsOk());
  store_.KeepOnly({"a"});
  EXPECT_THAT(Files(), ElementsAre("a"));
}

}  // namespace
}  // namespace miniray
