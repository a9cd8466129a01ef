#include "tools/cli/top_table.h"

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

v1::ActorInfo* AddActor(TopSample* sample, const std::string& id,
                        v1::ActorState state = v1::ACTOR_STATE_ALIVE) {
  v1::ActorInfo* actor = sample->state.add_actors();
  actor->set_actor_id(id);
  actor->set_class_name("Worker");
  actor->set_state(state);
  if (state == v1::ACTOR_STATE_ALIVE) {
    actor->set_node_id("n1");
    actor->set_pid(7);
  }
  return actor;
}

void AddUsage(TopSample* sample, const std::string& id, double cpus,
              int64_t memory) {
  v1::ActorUsage* usage = sample->usage.add_actors();
  usage->set_actor_id(id);
  usage->set_cpus(cpus);
  usage->set_memory_bytes(memory);
}

v1::NodeInfo* AddNode(TopSample* sample, const std::string& id,
                      v1::NodeState state = v1::NODE_STATE_ALIVE) {
  v1::NodeInfo* node = sample->state.add_nodes();
  node->set_node_id(id);
  node->set_hostname("h");
  node->set_state(state);
  return node;
}

std::vector<std::string> Ids(const TopSample& sample, TopOrder order) {
  std::vector<std::string> ids;
  for (const v1::ActorInfo* actor : SortedActors(sample, order)) {
    ids.push_back(actor->actor_id());
  }
  return ids;
}

TEST(TopTableTest, Orders) {
  EXPECT_EQ(ParseTopOrder("cpu").value(), TopOrder::kCpu);
  EXPECT_EQ(ParseTopOrder("memory").value(), TopOrder::kMemory);
  EXPECT_EQ(ParseTopOrder("name").value(), TopOrder::kName);
  for (const char* name : {"", "CPU", "age\x1b"}) {
    EXPECT_THAT(std::string(ParseTopOrder(name).status().message()),
                HasSubstr("expected cpu, memory or name"));
  }
  // One after the other, and around.
  TopOrder order = TopOrder::kCpu;
  for (const TopOrder next :
       {TopOrder::kMemory, TopOrder::kName, TopOrder::kCpu}) {
    order = NextOrder(order);
    EXPECT_EQ(order, next);
  }
}

TEST(TopTableTest, Sorting) {
  TopSample sample;
  AddActor(&sample, "a")->set_name("zoe");
  AddActor(&sample, "b")->set_name("adam");
  AddActor(&sample, "c")->set_name("mia");
  AddActor(&sample, "d", v1::ACTOR_STATE_PENDING);
  AddActor(&sample, "gone", v1::ACTOR_STATE_DEAD);
  AddUsage(&sample, "a", 0.501, 10);
  AddUsage(&sample, "b", 0.508, 5);  // The same percent as a.
  AddUsage(&sample, "c", 0, 20);
  EXPECT_THAT(Ids(sample, TopOrder::kCpu), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(Ids(sample, TopOrder::kMemory), ElementsAre("c", "a", "b", "d"));
  // The pending one is called by its id.
  EXPECT_THAT(Ids(sample, TopOrder::kName), ElementsAre("b", "d", "c", "a"));
}

TEST(TopTableTest, FiguresThatMakeNoSense) {
  TopSample sample;
  for (const char* id : {"a", "b", "c", "d", "e"}) AddActor(&sample, id);
  AddUsage(&sample, "a", std::numeric_limits<double>::quiet_NaN(), 1);
  AddUsage(&sample, "b", std::numeric_limits<double>::infinity(), 1);
  AddUsage(&sample, "c", -5, 1);
  AddUsage(&sample, "d", 0.1, std::numeric_limits<int64_t>::min() + 1);
  EXPECT_THAT(Ids(sample, TopOrder::kCpu),
              ElementsAre("b", "d", "a", "c", "e"));
  v1::NodeUsage* usage = sample.usage.add_nodes();
  usage->set_node_id("n1");
  usage->set_cpus_busy(3);  // Of none.
  AddNode(&sample, "n1");
  EXPECT_FALSE(FormatTop(sample, TopOrder::kCpu, 0).lines.empty());
}

TopSample SomeSample() {
  TopSample sample;
  sample.head_address = "a:1";
  sample.time = "now";
  v1::NodeInfo* node = AddNode(&sample, "n1");
  node->set_memory_used_bytes(int64_t{3} << 29);
  node->set_memory_total_bytes(int64_t{4} << 30);
  (*node->mutable_total()->mutable_quantity())["CPU"] = 8;
  (*node->mutable_available()->mutable_quantity())["CPU"] = 6.5;
  AddNode(&sample, "n2");
  AddNode(&sample, "n3", v1::NODE_STATE_DEAD);
  v1::NodeUsage* usage = sample.usage.add_nodes();
  usage->set_node_id("n1");
  usage->set_cpus_busy(2);
  usage->set_cpus(8);
  v1::ActorInfo* actor = AddActor(&sample, "a1");
  actor->set_name("ps");
  actor->set_actor_namespace("ns");
  actor->set_restarts(2);
  AddActor(&sample, "a2");
  AddActor(&sample, "a3", v1::ACTOR_STATE_PENDING);
  AddActor(&sample, "a4", v1::ACTOR_STATE_DEAD);
  AddUsage(&sample, "a1", 1.52, 300 << 20);
  AddUsage(&sample, "a2", 0.004, int64_t{5} << 29);
  sample.calls["a1"] = {1234.5, 7};
  sample.calls["a2"] = {-1, 0};
  return sample;
}

TEST(TopTableTest, NodesAndActors) {
  const Frame frame = FormatTop(SomeSample(), TopOrder::kCpu, 0);
  EXPECT_THAT(
      frame.lines,
      ElementsAre(
          "Head a:1  now  sorted by cpu",
          "Nodes: 2 alive, 1 dead; actors: 1 pending, 2 alive, 1 dead", "",
          "NODE  HOST  STATE  CPU   OF      MEMORY         RESERVED    ACTORS",
          "n1    h     alive  25 %  8 CPUs  1.5GiB/4.0GiB  1.5/8 CPUs  2",
          "n2    h     alive  -     -       -              -           0", "",
          "ACTOR  CLASS   STATE    NODE  PID  CPU    MEMORY  CALLS/S  QUEUE  "
          "RESTARTS",
          "ns/ps  Worker  alive    n1    7    152 %  300MiB  1234     7      2",
          "a2     Worker  alive    n1    7    0 %    2.5GiB  -        0      0",
          "a3     Worker  pending  -     -    -      -       -        -      "
          "0"));
  EXPECT_EQ(frame.inverse, (std::set<size_t>{0, 3, 7}));
}

TEST(TopTableTest, GpusWhereAMachineTells) {
  TopSample sample = SomeSample();
  for (const double busy : {0.25, 0.5}) {
    v1::GpuUsage* const gpu = sample.usage.mutable_nodes(0)->add_gpus();
    gpu->set_busy(busy);
    gpu->set_memory_used_bytes(int64_t{1} << 30);
    gpu->set_memory_total_bytes(int64_t{4} << 30);
  }
  // One that does not tell how busy it is.
  sample.usage.mutable_nodes(0)->add_gpus()->set_memory_total_bytes(int64_t{2}
                                                                    << 30);
  const Frame frame = FormatTop(sample, TopOrder::kCpu, 0);
  EXPECT_THAT(frame.lines[3], HasSubstr("GPU        GPU MEMORY"));
  EXPECT_THAT(frame.lines[4], HasSubstr("  37 % of 2  2.0GiB/10.0GiB  "));
  EXPECT_THAT(frame.lines[5], HasSubstr("n2"));
}

TEST(TopTableTest, OnAScreenItSaysItsKeys) {
  EXPECT_EQ(FormatTop(SomeSample(), TopOrder::kMemory, 24).lines[0],
            "Head a:1  now  sorted by memory  (s: sort, q: quit)");
}

TEST(TopTableTest, NothingThere) {
  const Frame frame = FormatTop(TopSample(), TopOrder::kCpu, 24);
  EXPECT_EQ(frame.lines[1], "Nodes: none; actors: none");
  EXPECT_EQ(frame.lines.size(), 6);
}

TEST(TopTableTest, AsMuchAsThereIsRoomFor) {
  TopSample sample;
  for (int i = 0; i < 30; ++i) {
    AddNode(&sample, absl::StrCat("node-", i));
    AddActor(&sample, absl::StrCat("actor-", 100 + i));
  }
  const Frame frame = FormatTop(sample, TopOrder::kName, 24);
  ASSERT_EQ(frame.lines.size(), 24);
  // Eight lines for the nodes, below three and their heading.
  EXPECT_THAT(frame.lines[4], HasSubstr("node-0"));
  EXPECT_THAT(frame.lines[10], HasSubstr("node-6"));
  EXPECT_EQ(frame.lines[11], "... and 23 more");
  EXPECT_THAT(frame.lines[14], HasSubstr("actor-100"));
  EXPECT_THAT(frame.lines[22], HasSubstr("actor-108"));
  EXPECT_EQ(frame.lines[23], "... and 21 more");
  // One row is room for nothing of it, and does no harm.
  EXPECT_THAT(FormatTop(sample, TopOrder::kName, 1).lines.back(),
              EndsWith("more"));
}

TEST(TopTableTest, ATableThatJustFitsIsWhole) {
  TopSample sample;
  AddNode(&sample, "n1");
  for (int i = 0; i < 3; ++i) AddActor(&sample, absl::StrCat("a", i));
  // Three lines, nodes with heading, a blank, the actors' heading: 7.
  const Frame frame = FormatTop(sample, TopOrder::kName, 10);
  ASSERT_EQ(frame.lines.size(), 10);
  EXPECT_THAT(frame.lines[9], HasSubstr("a2"));
  EXPECT_EQ(FormatTop(sample, TopOrder::kName, 9).lines[8], "... and 2 more");
}

}  // namespace
}  // namespace miniray::cli
