#include "tools/cli/status_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(StatusTableTest, EmptyCluster) {
  EXPECT_EQ(FormatClusterState({}, "127.0.0.1:6380", false),
            "Head: 127.0.0.1:6380\n\nNodes: 0\n\nActors: 0\n\nJobs: 0\n");
}

TEST(StatusTableTest, Tables) {
  v1::GetClusterStateResponse state;
  state.set_head_version("1.2");
  v1::NodeInfo* node = state.add_nodes();
  node->set_node_id("node-1");
  node->set_hostname("h");
  node->set_address("10.0.0.1");
  node->set_state(v1::NODE_STATE_ALIVE);
  auto& total = *node->mutable_total()->mutable_quantity();
  total = {};
  total["CPU"] = 4;
  total["memory"] = 8.0 * (1 << 30);
  total["slot"] = 2;
  auto& available = *node->mutable_available()->mutable_quantity();
  available["CPU"] = 2.5;
  available["memory"] = 8.0 * (1 << 30);
  node = state.add_nodes();
  node->set_node_id("node-23");
  node->set_state(v1::NODE_STATE_DEAD);
  node->set_death_cause("its lease ended");

  v1::ActorInfo* actor = state.add_actors();
  actor->set_class_name("Counter");
  actor->set_name("c");
  actor->set_actor_namespace("ns");
  actor->set_state(v1::ACTOR_STATE_ALIVE);
  actor->set_node_id("node-1");
  actor->set_pid(77);
  actor->set_restarts(2);
  actor = state.add_actors();
  actor->set_class_name("Counter");
  actor->set_state(v1::ACTOR_STATE_PENDING);
  actor->set_cause("waits for 8 CPU");

  v1::JobInfo* job = state.add_jobs();
  job->set_job_id("job-1");
  job->set_program("train");
  job->set_state(v1::JOB_STATE_RUNNING);
  job = state.add_jobs();
  job->set_job_id("job-2");
  job->set_program("mine");
  job->set_state(v1::JOB_STATE_SUCCEEDED);  // Not a submitted one.

  EXPECT_EQ(
      FormatClusterState(state, "a:1", false),
      "Head: a:1 (Mini-Ray 1.2)\n"
      "\n"
      "Nodes: 2\n"
      "  ID       HOST  ADDRESS   STATE  CPU    GPU  MEMORY         OTHER     "
      "CAUSE\n"
      "  node-1   h     10.0.0.1  alive  1.5/4  -    0.0GiB/8.0GiB  slot 2/2  "
      "-\n"
      "  node-23  -     -         dead   -      -    -              -         "
      "its lease ended\n"
      "\n"
      "Actors: 2\n"
      "  CLASS    NAME  STATE    NODE    PID  RESTARTS  CAUSE\n"
      "  Counter  ns/c  alive    node-1  77   2         -\n"
      "  Counter  -     pending  -       -    0         waits for 8 CPU\n"
      "\n"
      "Jobs: 2\n"
      "  ID     PROGRAM  STATE    HOST  PID  START  END  CAUSE\n"
      "  job-1  train    running  -     -    -      -    -\n"
      "  job-2  mine     ended    -     -    -      -    -\n");
}

TEST(StatusTableTest, TheDeadOnlyWhereTheyAreWanted) {
  v1::GetClusterStateResponse state;
  v1::ActorInfo* actor = state.add_actors();
  actor->set_class_name("Gone");
  actor->set_state(v1::ACTOR_STATE_DEAD);
  v1::PlacementGroupInfo* group = state.add_placement_groups();
  group->set_placement_group_id("pg-1");
  group->set_state(v1::PLACEMENT_GROUP_STATE_REMOVED);
  group = state.add_placement_groups();
  group->set_placement_group_id("pg-2");
  group->set_strategy(v1::PLACEMENT_STRATEGY_STRICT_PACK);
  group->set_state(v1::PLACEMENT_GROUP_STATE_PENDING);
  group->set_cause("waits");
  group->add_bundles();
  const std::string text = FormatClusterState(state, "a:1", false);
  EXPECT_THAT(text, Not(HasSubstr("Gone")));
  EXPECT_THAT(text, HasSubstr("Actors: 0\n  and 1 dead: see them with --all"));
  EXPECT_THAT(text, Not(HasSubstr("pg-1")));
  EXPECT_THAT(
      text,
      EndsWith("Placement groups: 1\n"
               "  ID    NAME  STRATEGY     STATE    BUNDLES  JOB  CAUSE\n"
               "  pg-2  -     strict_pack  pending  1        -    waits\n"));
  const std::string all = FormatClusterState(state, "a:1", true);
  EXPECT_THAT(all, HasSubstr("Gone"));
  EXPECT_THAT(all, HasSubstr("pg-1"));
}

TEST(StatusTableTest, WhatUsersWriteStaysInItsLine) {
  v1::GetClusterStateResponse state;
  v1::ActorInfo* actor = state.add_actors();
  actor->set_name("\x1b[31mred");
  actor->set_cause("  first\nsecond\r\n");
  const std::string text = FormatClusterState(state, "a:1", false);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("first second\n"));
}

TEST(StatusTableTest, CharactersOfManyBytesTakeOnePlace) {
  v1::GetClusterStateResponse state;
  state.add_actors()->set_class_name("Zähler");
  state.add_actors()->set_class_name("Number");
  const std::string text = FormatClusterState(state, "a:1", false);
  EXPECT_THAT(text, HasSubstr("  Zähler  -     "));
  EXPECT_THAT(text, HasSubstr("  Number  -     "));
}

}  // namespace
}  // namespace miniray::cli
