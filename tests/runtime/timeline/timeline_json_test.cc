#include "runtime/timeline/timeline_json.h"

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Json = nlohmann::json;

v1::CallRecord* AddCall(v1::GetCallRecordsResponse* calls,
                        const std::string& actor, int64_t pid, int lane) {
  v1::CallRecord* call = calls->add_records();
  call->set_actor_id(actor);
  call->set_class_name("Counter");
  call->set_method("Add");
  call->set_job_id("job-1");
  call->set_node_id("n");
  call->set_pid(pid);
  call->set_lane(lane);
  call->set_queued_unix_us(100);
  call->set_start_unix_us(150);
  call->set_end_unix_us(400);
  return call;
}

void AddSpan(v1::GetRunResponse* run, const std::string& track,
             const std::string& name, int64_t start, int64_t end) {
  v1::RunSpan* span = run->add_spans();
  span->set_track(track);
  span->set_name(name);
  span->set_start_unix_us(start);
  span->set_end_unix_us(end);
}

v1::GetRunResponse RunOf(const std::string& id, const std::string& hostname) {
  v1::GetRunResponse run;
  run.mutable_run()->set_run_id(id);
  run.mutable_run()->set_kind("GanTrainer");
  run.mutable_run()->set_job_id("job-1");
  run.mutable_run()->set_hostname(hostname);
  return run;
}

void AddClock(v1::GetCallRecordsResponse* calls, const std::string& node,
              const std::string& host, int64_t ahead, int64_t error) {
  v1::NodeClock* clock = calls->add_clocks();
  clock->set_node_id(node);
  clock->set_hostname(host);
  clock->mutable_reading()->set_ahead_us(ahead);
  clock->mutable_reading()->set_error_us(error);
}

// A trace as a viewer reads it.
struct Trace {
  Json json;
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;  // By pid and tid.
  std::vector<Json> slices;

  // "process / thread / slice" of each.
  std::vector<std::string> Paths() const {
    std::vector<std::string> paths;
    for (const Json& slice : slices) {
      const int pid = slice["pid"], tid = slice["tid"];
      paths.push_back(processes.at(pid) + " / " + threads.at({pid, tid}) +
                      " / " + slice["name"].get<std::string>());
    }
    return paths;
  }
  const Json& Slice(const std::string& name) const {
    for (const Json& slice : slices) {
      if (slice["name"] == name) return slice;
    }
    ADD_FAILURE() << "no slice " << name;
    return json;
  }
};

// Parses it, and checks what holds of every trace.
Trace Parse(const std::string& text) {
  Trace trace;
  trace.json = Json::parse(text);
  std::map<int, int> process_places;
  std::map<std::pair<int, int>, int> thread_places;
  for (const Json& event : trace.json["traceEvents"]) {
    const int pid = event["pid"], tid = event["tid"];
    EXPECT_GT(pid, 0);
    EXPECT_GT(tid, 0);
    const std::string name = event["name"];
    if (event["ph"] == "M") {
      const Json& args = event["args"];
      if (name == "process_name") {
        EXPECT_TRUE(
            trace.processes.emplace(pid, args["name"].get<std::string>())
                .second);
      } else if (name == "process_sort_index") {
        process_places[pid] = args["sort_index"].get<int>();
      } else if (name == "thread_name") {
        EXPECT_TRUE(
            trace.threads
                .emplace(std::pair(pid, tid), args["name"].get<std::string>())
                .second);
      } else if (name == "thread_sort_index") {
        thread_places[{pid, tid}] = args["sort_index"].get<int>();
      } else {
        ADD_FAILURE() << event;
      }
      continue;
    }
    EXPECT_EQ(event["ph"], "X");
    EXPECT_TRUE(event["ts"].is_number_integer()) << event;
    EXPECT_GE(event["dur"].get<int64_t>(), 0) << event;
    trace.slices.push_back(event);
  }
  std::set<int> places, tids;
  for (const auto& [pid, name] : trace.processes) {
    EXPECT_TRUE(places.insert(process_places.at(pid)).second);
    EXPECT_TRUE(tids.insert(pid).second);
  }
  for (const auto& [thread, name] : trace.threads) {
    EXPECT_TRUE(trace.processes.count(thread.first)) << name;
    EXPECT_TRUE(thread_places.count(thread)) << name;
    // No thread is of two processes, or has the number of one.
    EXPECT_TRUE(tids.insert(thread.second).second) << name;
  }
  return trace;
}

TEST(TimelineJsonTest, NothingHappened) {
  const Trace trace = Parse(TimelineJson({}, {}));
  EXPECT_TRUE(trace.json["traceEvents"].is_array());
  EXPECT_THAT(trace.json["traceEvents"], IsEmpty());
  EXPECT_EQ(trace.json["otherData"]["dropped_calls"], 0);
}

TEST(TimelineJsonTest, ProcessesLanesAndCalls) {
  v1::GetCallRecordsResponse calls;
  calls.set_dropped(5);
  AddCall(&calls, "a", 1, 0)->set_actor_name("c");
  AddCall(&calls, "a", 1, 1)->set_failed(true);
  AddCall(&calls, "a", 2, 0);  // After a restart.
  AddCall(&calls, "b", 3, 0);
  AddCall(&calls, "a", 1, 0)->set_method("Get");
  const Trace trace = Parse(TimelineJson(calls, {}));
  EXPECT_EQ(trace.json["otherData"]["dropped_calls"], 5);
  EXPECT_THAT(trace.Paths(),
              ElementsAre("Counter 'c' (pid 1, n) / lane 0 / Add",
                          "Counter 'c' (pid 1, n) / lane 1 / Add",
                          "Counter a (pid 2, n) / lane 0 / Add",
                          "Counter b (pid 3, n) / lane 0 / Add",
                          "Counter 'c' (pid 1, n) / lane 0 / Get"));
  const Json& call = trace.slices[0];
  EXPECT_EQ(call["ts"], 150);
  EXPECT_EQ(call["dur"], 250);
  EXPECT_EQ(call["cat"], "call");
  EXPECT_EQ(call["args"]["waited_us"], 50);
  EXPECT_EQ(call["args"]["actor"], "a");
  EXPECT_EQ(call["args"]["job"], "job-1");
  EXPECT_EQ(call["args"]["node"], "n");
  EXPECT_EQ(call["args"]["failed"], false);
  EXPECT_EQ(trace.slices[1]["cat"], "failed call");
  EXPECT_EQ(trace.slices[1]["args"]["failed"], true);
}

TEST(TimelineJsonTest, RunsComeFirstWithTheirTracksInOrder) {
  v1::GetCallRecordsResponse calls;
  AddCall(&calls, "a", 1, 0);
  v1::GetRunResponse run = RunOf("gan-1", "box");
  AddSpan(&run, "worker 10", "epoch 0", 10, 60);
  AddSpan(&run, "worker 2", "epoch 0", 10, 70);
  AddSpan(&run, "checkpoints", "checkpoint 0", 80, 95);
  AddSpan(&run, "trainer", "epoch 0", 10, 90);
  AddSpan(&run, "trainer", "sync 1", 70, 85);
  AddSpan(&run, "", "nameless track", 1, 2);
  const Trace trace = Parse(TimelineJson(calls, {RunOf("empty", "box"), run}));
  const std::string name = "run 'gan-1' (GanTrainer, box)";
  EXPECT_THAT(
      trace.Paths(),
      ElementsAre(name + " / trainer / epoch 0", name + " / trainer / sync 1",
                  name + " / checkpoints / checkpoint 0",
                  name + " / run / nameless track",
                  name + " / worker 2 / epoch 0",
                  name + " / worker 10 / epoch 0",
                  "Counter a (pid 1, n) / lane 0 / Add"));
  // Threads stand in the order of their numbers.
  int last = 0;
  for (const auto& [thread, track] : trace.threads) {
    EXPECT_GT(thread.second, last) << track;
    last = thread.second;
  }
  const Json& sync = trace.Slice("sync 1");
  EXPECT_EQ(sync["ts"], 70);
  EXPECT_EQ(sync["dur"], 15);
  EXPECT_EQ(sync["cat"], "run");
  EXPECT_EQ(sync["args"]["run"], "gan-1");
  EXPECT_EQ(sync["args"]["job"], "job-1");
}

TEST(TimelineJsonTest, SpansOfATrackThatOverlapHaveThreadsOfTheirOwn) {
  v1::GetRunResponse run = RunOf("r", "box");
  AddSpan(&run, "checkpoints", "first", 0, 10);
  AddSpan(&run, "checkpoints", "second", 5, 15);
  AddSpan(&run, "checkpoints", "third", 10, 20);
  const Trace trace = Parse(TimelineJson({}, {run}));
  EXPECT_THAT(
      trace.Paths(),
      ElementsAre("run 'r' (GanTrainer, box) / checkpoints / first",
                  "run 'r' (GanTrainer, box) / checkpoints (2) / second",
                  "run 'r' (GanTrainer, box) / checkpoints / third"));
}

TEST(TimelineJsonTest, TimesAreBroughtToTheHeadsClock) {
  v1::GetCallRecordsResponse calls;
  AddCall(&calls, "a", 1, 0)->set_method("ahead");
  AddCall(&calls, "b", 2, 0)->set_method("behind");
  AddCall(&calls, "c", 3, 0)->set_method("right");
  AddCall(&calls, "d", 4, 0)->set_method("unknown");
  calls.mutable_records(0)->set_node_id("n1");
  calls.mutable_records(1)->set_node_id("n2");
  calls.mutable_records(2)->set_node_id("n3");
  calls.mutable_records(3)->set_node_id("n4");
  AddClock(&calls, "n1", "box 1", 40, 39);
  AddClock(&calls, "n2", "box 2", -1000, 20);
  // May be right: within its error.
  AddClock(&calls, "n3", "box 3", -30, 30);
  v1::GetRunResponse run = RunOf("r", "box 2");
  AddSpan(&run, "trainer", "span", 150, 400);
  v1::GetRunResponse elsewhere = RunOf("s", "box 5");
  AddSpan(&elsewhere, "trainer", "span elsewhere", 150, 400);
  const Trace trace = Parse(TimelineJson(calls, {run, elsewhere}));
  EXPECT_EQ(trace.Slice("ahead")["ts"], 110);
  EXPECT_EQ(trace.Slice("behind")["ts"], 1150);
  EXPECT_EQ(trace.Slice("right")["ts"], 150);
  EXPECT_EQ(trace.Slice("unknown")["ts"], 150);
  EXPECT_EQ(trace.Slice("span")["ts"], 1150);
  EXPECT_EQ(trace.Slice("span elsewhere")["ts"], 150);
  for (const Json& slice : trace.slices) EXPECT_EQ(slice["dur"], 250);
  for (const char* call : {"ahead", "behind", "right", "unknown"}) {
    EXPECT_EQ(trace.Slice(call)["args"]["waited_us"], 50);
  }
  const Json& clocks = trace.json["otherData"]["clocks"];
  ASSERT_EQ(clocks.size(), 3);
  EXPECT_EQ(clocks[1]["node"], "n2");
  EXPECT_EQ(clocks[1]["host"], "box 2");
  EXPECT_EQ(clocks[1]["ahead_us"], -1000);
  EXPECT_EQ(clocks[1]["error_us"], 20);
}

TEST(TimelineJsonTest, AHostsClockIsThatOfItsNodeWhoseClockIsKnownBest) {
  v1::GetCallRecordsResponse calls;
  AddClock(&calls, "n1", "box", 90, 20);
  AddClock(&calls, "n2", "box", 100, 5);
  AddClock(&calls, "n3", "box", 80, 50);
  v1::GetRunResponse run = RunOf("r", "box");
  AddSpan(&run, "trainer", "span", 150, 400);
  EXPECT_EQ(Parse(TimelineJson(calls, {run})).Slice("span")["ts"], 50);
}

TEST(TimelineJsonTest, WhatUsersWriteIsEscaped) {
  const std::string odd = "a \"quoted\" \\ \n\t\x01 z\xc3\xa4h";
  v1::GetCallRecordsResponse calls;
  AddCall(&calls, odd, 1, 0)->set_method(odd);
  AddCall(&calls, "b", 2, 0)->set_method("\xff is not UTF-8");
  AddClock(&calls, odd, odd, 0, 0);
  v1::GetRunResponse run = RunOf(odd, odd);
  AddSpan(&run, odd, odd, 1, 2);
  const Trace trace = Parse(TimelineJson(calls, {run}));
  EXPECT_EQ(trace.slices[0]["name"], odd);
  EXPECT_EQ(trace.slices[0]["args"]["run"], odd);
  EXPECT_EQ(trace.slices[1]["name"], odd);
  EXPECT_EQ(trace.slices[1]["args"]["actor"], odd);
  EXPECT_EQ(trace.slices[2]["name"], "\xef\xbf\xbd is not UTF-8");
  EXPECT_EQ(trace.json["otherData"]["clocks"][0]["node"], odd);
}

TEST(TimelineJsonTest, TimesThatMakeNoSenseDoNoHarm) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  v1::GetCallRecordsResponse calls;
  v1::CallRecord* call = AddCall(&calls, "a", 1, -1);
  call->set_queued_unix_us(most);
  call->set_start_unix_us(-most - 1);
  call->set_end_unix_us(most);
  AddCall(&calls, "b", 2, 0)->set_end_unix_us(1);  // Before its start.
  AddClock(&calls, "n", "box", -most - 1, 0);
  v1::GetRunResponse run = RunOf("r", "box");
  AddSpan(&run, "trainer", "span", most, -most - 1);
  const Trace trace = Parse(TimelineJson(calls, {run}));
  ASSERT_EQ(trace.slices.size(), 3);
  EXPECT_EQ(trace.slices[0]["dur"], 0);
  EXPECT_EQ(trace.slices[1]["dur"], most);
  EXPECT_EQ(trace.slices[1]["args"]["waited_us"], 0);
  EXPECT_EQ(trace.slices[2]["dur"], 0);
}

TEST(TimelineJsonTest, ALongOneComesInPieces) {
  v1::GetCallRecordsResponse calls;
  for (int i = 0; i < 2000; ++i) AddCall(&calls, "a", 1, i % 3);
  std::string text;
  int pieces = 0;
  WriteTimeline(calls, {}, [&](absl::string_view piece) {
    EXPECT_LE(piece.size(), 80u << 10);
    text += std::string(piece);
    ++pieces;
  });
  // At least 100 bytes a call, and 64 KiB a piece.
  EXPECT_GE(pieces, 3);
  EXPECT_EQ(Parse(text).slices.size(), 2000);
  EXPECT_EQ(text, TimelineJson(calls, {}));
}

}  // namespace
}  // namespace miniray
