#include "tools/cli/list_table.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/cli/table_format.h"

namespace miniray::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ListTableTest, NamesOfTables) {
  EXPECT_EQ(ParseTable("nodes").value(), v1::TABLE_NODES);
  EXPECT_EQ(ParseTable("placement-groups").value(), v1::TABLE_PLACEMENT_GROUPS);
  EXPECT_EQ(ParseTable("placement_groups").value(), v1::TABLE_PLACEMENT_GROUPS);
  for (const char* name : {"", "node", "NODES"}) {
    EXPECT_THAT(
        std::string(ParseTable(name).status().message()),
        HasSubstr("nodes, actors, jobs, runs, placement-groups or packages"));
  }
}

TEST(ListTableTest, Filters) {
  const auto filters = ParseFilters({"state=alive", "class-name=a=b", "name="});
  ASSERT_TRUE(filters.ok()) << filters.status();
  ASSERT_EQ(filters->size(), 3);
  EXPECT_EQ((*filters)[0].field(), "state");
  EXPECT_EQ((*filters)[0].value(), "alive");
  EXPECT_EQ((*filters)[1].field(), "class_name");
  EXPECT_EQ((*filters)[1].value(), "a=b");
  EXPECT_EQ((*filters)[2].value(), "");
  for (const char* filter : {"", "state", "=alive"}) {
    EXPECT_THAT(std::string(ParseFilters({filter}).status().message()),
                HasSubstr("FIELD=VALUE"));
  }
}

v1::GetClusterStateResponse SomeState() {
  v1::GetClusterStateResponse state;
  v1::NodeInfo* node = state.add_nodes();
  node->set_node_id("node-1");
  node->set_state(v1::NODE_STATE_ALIVE);
  (*node->mutable_total()->mutable_quantity())["CPU"] = 4;
  (*node->mutable_labels())["zone"] = "a";
  v1::ActorInfo* actor = state.add_actors();
  actor->set_actor_id("actor-1");
  actor->set_class_name("Counter");
  actor->set_state(v1::ACTOR_STATE_DEAD);
  actor->set_cause("killed\nby request");
  v1::JobInfo* job = state.add_jobs();
  job->set_job_id("job-1");
  job->set_submitted(true);
  job->set_state(v1::JOB_STATE_FAILED);
  job->set_exit_code(3);
  job->set_end_unix_ms(1);
  v1::PlacementGroupInfo* group = state.add_placement_groups();
  group->set_placement_group_id("pg-1");
  group->set_strategy(v1::PLACEMENT_STRATEGY_STRICT_SPREAD);
  v1::BundleInfo* bundle = group->add_bundles();
  (*bundle->mutable_total()->mutable_quantity())["CPU"] = 2;
  bundle->set_node_id("node-1");
  v1::PackageInfo* package = state.add_packages();
  package->set_package_id("abc");
  package->set_size(3 << 20);
  return state;
}

TEST(ListTableTest, Columns) {
  const v1::GetClusterStateResponse state = SomeState();
  EXPECT_THAT(FormatList(v1::TABLE_NODES, state),
              AllOf(HasSubstr("ID "), HasSubstr("node-1"), HasSubstr("4/4"),
                    HasSubstr("zone=a")));
  EXPECT_THAT(FormatList(v1::TABLE_ACTORS, state),
              AllOf(HasSubstr("actor-1"), HasSubstr("dead"),
                    HasSubstr("killed by request\n"), Not(HasSubstr("job-1"))));
  EXPECT_THAT(FormatList(v1::TABLE_JOBS, state),
              AllOf(HasSubstr("job-1"), HasSubstr("failed"), HasSubstr(" 3 ")));
  EXPECT_THAT(FormatList(v1::TABLE_PLACEMENT_GROUPS, state),
              AllOf(HasSubstr("strict_spread"), HasSubstr("CPU 2 on node-1")));
  EXPECT_THAT(FormatList(v1::TABLE_PACKAGES, state), HasSubstr("abc  3.0MiB"));
}

TEST(ListTableTest, NothingInALineActsOnTheTerminal) {
  EXPECT_EQ(OneLine(" a\nb\t\x1b[2J\x7f.\r\n"), "a b  [2J .");
  // U+009B "31m", U+0080, U+009F and U+0085.
  EXPECT_EQ(OneLine("a\xc2\x9b"
                    "31m b\xc2\x80\xc2\x9f.\xc2\x85"),
            "a 31m b  . ");
  // U+00A0, U+00DB and U+4E1B, which have such bytes, and half a character.
  for (const char* text :
       {"a\xc2\xa0z", "a\xc3\x9bz", "a\xe4\xb8\x9bz", "a\xc2", "\xc2z"}) {
    EXPECT_EQ(OneLine(text), text);
  }
  v1::GetClusterStateResponse state;
  state.add_actors()->set_name("na\xc2\x9bme");
  EXPECT_THAT(FormatList(v1::TABLE_ACTORS, state), HasSubstr(" na me "));
}

v1::JobInfo EndedJob(v1::JobState state, bool submitted = true) {
  v1::JobInfo job;
  job.set_submitted(submitted);
  job.set_state(state);
  job.set_submit_unix_ms(1);
  job.set_end_unix_ms(3);
  return job;
}

TEST(ListTableTest, HowADriverEndedThatConnectedByItselfIsNotKnown) {
  EXPECT_EQ(JobStateWord(EndedJob(v1::JOB_STATE_SUCCEEDED)), "succeeded");
  EXPECT_EQ(JobStateWord(EndedJob(v1::JOB_STATE_SUCCEEDED, false)), "ended");
  EXPECT_EQ(JobStateWord(EndedJob(v1::JOB_STATE_FAILED, false)), "failed");
  v1::GetClusterStateResponse state;
  *state.add_jobs() = EndedJob(v1::JOB_STATE_SUCCEEDED, false);
  EXPECT_THAT(FormatList(v1::TABLE_JOBS, state),
              AllOf(HasSubstr(" ended "), Not(HasSubstr("succeeded"))));
}

TEST(ListTableTest, AnExitCodeIsShownWhereThereIsOne) {
  v1::JobInfo job = EndedJob(v1::JOB_STATE_SUCCEEDED);
  job.set_start_unix_ms(2);
  EXPECT_EQ(ExitCodeText(job), "0");
  job.set_state(v1::JOB_STATE_STOPPED);  // It obeyed the signal.
  EXPECT_EQ(ExitCodeText(job), "0");
  // Never placed.
  EXPECT_EQ(ExitCodeText(EndedJob(v1::JOB_STATE_STOPPED)), "");
  EXPECT_EQ(ExitCodeText(EndedJob(v1::JOB_STATE_FAILED)), "");
  job.set_state(v1::JOB_STATE_FAILED);  // With its node.
  EXPECT_EQ(ExitCodeText(job), "");
  job = EndedJob(v1::JOB_STATE_FAILED);
  job.set_exit_code(126);  // Could not be started.
  EXPECT_EQ(ExitCodeText(job), "126");
  job.set_submitted(false);
  EXPECT_EQ(ExitCodeText(job), "");
  job = EndedJob(v1::JOB_STATE_RUNNING);
  job.clear_end_unix_ms();
  EXPECT_EQ(ExitCodeText(job), "");
}

TEST(ListTableTest, FiltersKnowEndedFromSucceeded) {
  const auto filters = ForJobs(
      ParseFilters({"state=ended", "state=Succeeded", "state=failed"}).value());
  std::vector<std::string> texts;
  for (const v1::Filter& filter : filters) {
    texts.push_back(filter.field() + "=" + filter.value());
  }
  EXPECT_THAT(texts,
              ElementsAre("state=succeeded", "submitted=false",
                          "state=succeeded", "submitted=true", "state=failed"));
}

TEST(ListTableTest, TheOldestComeFirst) {
  v1::GetClusterStateResponse state;
  const auto add = [&state](const std::string& id, int64_t submit,
                            int64_t start) {
    v1::JobInfo* job = state.add_jobs();
    job->set_job_id(id);
    job->set_submit_unix_ms(submit);
    job->set_start_unix_ms(start);
  };
  add("a", 10, 40);
  add("b", 20, 0);  // Waits.
  add("c", 0, 30);  // Connected by itself.
  add("z", 0, 5);
  add("y", 0, 5);
  for (const auto& [id, time] : std::vector<std::pair<std::string, int64_t>>{
           {"old", 1}, {"newest", 3}, {"b", 2}, {"a", 2}}) {
    v1::ActorInfo* actor = state.add_actors();
    actor->set_actor_id(id);
    actor->set_create_unix_ms(time);
    actor->set_start_unix_ms(100 - time);  // Restarted.
    v1::NodeInfo* node = state.add_nodes();
    node->set_node_id(id);
    node->set_start_unix_ms(time);
    v1::PlacementGroupInfo* group = state.add_placement_groups();
    group->set_placement_group_id(id);
    group->set_create_unix_ms(time);
  }
  SortByAge(&state);
  std::vector<std::string> jobs, actors, nodes, groups;
  for (const auto& job : state.jobs()) jobs.push_back(job.job_id());
  for (const auto& actor : state.actors()) actors.push_back(actor.actor_id());
  for (const auto& node : state.nodes()) nodes.push_back(node.node_id());
  for (const auto& group : state.placement_groups()) {
    groups.push_back(group.placement_group_id());
  }
  EXPECT_THAT(jobs, ElementsAre("y", "z", "b", "c", "a"));
  EXPECT_THAT(actors, ElementsAre("old", "a", "b", "newest"));
  EXPECT_EQ(nodes, actors);
  EXPECT_EQ(groups, actors);
}

TEST(ListTableTest, JsonIsAnArrayOfRecords) {
  const v1::GetClusterStateResponse state = SomeState();
  for (const v1::Table table :
       {v1::TABLE_NODES, v1::TABLE_ACTORS, v1::TABLE_JOBS,
        v1::TABLE_PLACEMENT_GROUPS, v1::TABLE_PACKAGES}) {
    const auto json = nlohmann::json::parse(ListToJson(table, state).value());
    ASSERT_EQ(json.size(), 1);
    EXPECT_TRUE(json[0].is_object());
    EXPECT_EQ(ListToJson(table, {}).value(), "[]\n");
  }
  const auto actors =
      nlohmann::json::parse(ListToJson(v1::TABLE_ACTORS, state).value());
  EXPECT_EQ(actors[0]["state"], "ACTOR_STATE_DEAD");
  EXPECT_EQ(actors[0]["restarts"], 0);
}

}  // namespace
}  // namespace miniray::cli
