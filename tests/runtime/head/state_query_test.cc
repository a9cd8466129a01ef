#include "runtime/head/state_query.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Filters = std::vector<std::pair<std::string, std::string>>;

v1::GetClusterStateRequest Query(const std::vector<v1::Table>& tables,
                                 const Filters& filters = {}) {
  v1::GetClusterStateRequest request;
  for (const v1::Table table : tables) request.add_tables(table);
  for (const auto& [field, value] : filters) {
    v1::Filter* filter = request.add_filters();
    filter->set_field(field);
    filter->set_value(value);
  }
  return request;
}

v1::GetClusterStateResponse State() {
  v1::GetClusterStateResponse state;
  state.set_head_version("1");
  state.add_nodes()->set_state(v1::NODE_STATE_ALIVE);
  for (int i = 0; i < 3; ++i) {
    v1::ActorInfo* actor = state.add_actors();
    actor->set_name(i == 0 ? "c" : "");
    actor->set_state(i == 2 ? v1::ACTOR_STATE_DEAD : v1::ACTOR_STATE_ALIVE);
    actor->set_restarts(i);
    actor->set_detached(i == 1);
    actor->set_pid(100 + i);
  }
  state.add_jobs()->set_state(v1::JOB_STATE_RUNNING);
  state.add_packages()->set_package_id("p");
  return state;
}

// "nodes actors jobs packages" that are left.
std::string Left(const v1::GetClusterStateRequest& request) {
  EXPECT_THAT(CheckQuery(request), IsOk());
  v1::GetClusterStateResponse state = State();
  ApplyQuery(request, &state);
  EXPECT_EQ(state.head_version(), "1");
  return absl::StrCat(state.nodes_size(), " ", state.actors_size(), " ",
                      state.jobs_size(), " ", state.packages_size());
}

TEST(StateQueryTest, Tables) {
  EXPECT_EQ(Left(Query({})), "1 3 1 0");
  EXPECT_EQ(Left(Query({v1::TABLE_NODES})), "1 0 0 0");
  EXPECT_EQ(Left(Query({v1::TABLE_PACKAGES, v1::TABLE_JOBS})), "0 0 1 1");
  v1::GetClusterStateRequest request;
  request.add_tables(static_cast<v1::Table>(99));
  EXPECT_THAT(CheckQuery(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("99")));
}

TEST(StateQueryTest, FiltersByAnyKindOfField) {
  const auto actors = [](const Filters& filters) {
    return Left(Query({v1::TABLE_ACTORS}, filters));
  };
  EXPECT_EQ(actors({{"state", "alive"}}), "0 2 0 0");
  EXPECT_EQ(actors({{"state", "Dead"}}), "0 1 0 0");
  EXPECT_EQ(actors({{"state", "ACTOR_STATE_DEAD"}}), "0 1 0 0");
  EXPECT_EQ(actors({{"name", "c"}}), "0 1 0 0");
  EXPECT_EQ(actors({{"name", ""}}), "0 2 0 0");
  EXPECT_EQ(actors({{"restarts", "2"}}), "0 1 0 0");
  EXPECT_EQ(actors({{"pid", "101"}}), "0 1 0 0");
  EXPECT_EQ(actors({{"detached", "true"}}), "0 1 0 0");
  EXPECT_EQ(actors({{"state", "alive"}, {"name", "c"}}), "0 1 0 0");
  EXPECT_EQ(actors({{"state", "dead"}, {"name", "c"}}), "0 0 0 0");
}

TEST(StateQueryTest, AnActorPassesWhatItsTableIsLeftWith) {
  const v1::GetClusterStateResponse state = State();
  for (const Filters& filters :
       {Filters{{"state", "alive"}}, Filters{{"restarts", "2"}},
        Filters{{"state", "alive"}, {"detached", "true"}},
        Filters{{"name", "c"}}, Filters{}}) {
    const v1::GetClusterStateRequest request =
        Query({v1::TABLE_ACTORS}, filters);
    int passes = 0;
    for (const v1::ActorInfo& actor : state.actors()) {
      passes += Passes(request, actor);
    }
    v1::GetClusterStateResponse left = state;
    ApplyQuery(request, &left);
    EXPECT_EQ(passes, left.actors_size());
  }
}

TEST(StateQueryTest, AFilterConcernsTheTablesThatHaveItsField) {
  EXPECT_EQ(Left(Query({}, {{"restarts", "0"}})), "1 1 1 0");
  EXPECT_EQ(
      Left(Query({v1::TABLE_NODES, v1::TABLE_ACTORS}, {{"state", "alive"}})),
      "1 2 0 0");
}

TEST(StateQueryTest, Mistakes) {
  EXPECT_THAT(CheckQuery(Query({v1::TABLE_ACTORS}, {{"colour", "red"}})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'colour'"), HasSubstr("class_name"),
                             Not(HasSubstr("exit_code")))));
  EXPECT_THAT(CheckQuery(Query({v1::TABLE_ACTORS}, {{"state", "asleep"}})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("one of pending, starting, alive")));
  EXPECT_THAT(CheckQuery(Query({v1::TABLE_ACTORS}, {{"restarts", "many"}})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a whole number")));
  EXPECT_THAT(
      CheckQuery(Query({v1::TABLE_ACTORS}, {{"detached", "maybe"}})),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("true or false")));
  // Neither a message nor a list has one value.
  for (const char* field : {"resources", "total", "bundles", ""}) {
    EXPECT_THAT(CheckQuery(Query({}, {{field, "1"}})),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << field;
  }
}

TEST(StateQueryTest, TheSameFiltersForOtherRecords) {
  const auto filters = [](const Filters& pairs) {
    const v1::GetClusterStateRequest request = Query({}, pairs);
    return std::vector<v1::Filter>(request.filters().begin(),
                                   request.filters().end());
  };
  // Any message with fields of one value.
  v1::JobInfo job;
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_submitted(true);
  const auto& record = *v1::JobInfo::descriptor();
  ASSERT_THAT(CheckFilters(record, filters({{"state", "running"}})), IsOk());
  EXPECT_TRUE(PassesFilters(filters({}), job));
  EXPECT_TRUE(PassesFilters(filters({{"state", "running"}}), job));
  EXPECT_TRUE(PassesFilters(
      filters({{"state", "RUNNING"}, {"submitted", "true"}}), job));
  EXPECT_FALSE(PassesFilters(
      filters({{"state", "running"}, {"submitted", "false"}}), job));
  EXPECT_THAT(CheckFilters(record, filters({{"colour", "red"}})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'colour'"), HasSubstr("exit_code"),
                             Not(HasSubstr("class_name")))));
  EXPECT_THAT(CheckFilters(record, filters({{"state", "asleep"}})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("one of pending, running")));
}

}  // namespace
}  // namespace miniray
