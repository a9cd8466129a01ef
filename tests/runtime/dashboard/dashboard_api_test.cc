// What is under /api/v1/ to read, route by route.

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/actor.pb.h"
#include "proto/head.pb.h"
#include "proto/run.pb.h"
#include "runtime/dashboard/dashboard_server.h"
#include "tests/runtime/dashboard/dashboard_api_testutil.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::NodeInfo Node(const std::string& id, v1::NodeState state, int64_t start) {
  v1::NodeInfo node;
  node.set_node_id(id);
  node.set_state(state);
  node.set_start_unix_ms(start);
  return node;
}

v1::JobInfo Job(const std::string& id, v1::JobState state, int64_t start,
                int64_t submit) {
  v1::JobInfo job;
  job.set_job_id(id);
  job.set_state(state);
  job.set_start_unix_ms(start);
  job.set_submit_unix_ms(submit);
  return job;
}

v1::ActorInfo Actor(const std::string& id, v1::ActorState state,
                    int64_t create) {
  v1::ActorInfo actor;
  actor.set_actor_id(id);
  actor.set_state(state);
  actor.set_create_unix_ms(create);
  actor.set_class_name("shop::Counter");
  actor.set_job_id("job-a");
  actor.set_node_id("node-a");
  return actor;
}

TEST_F(DashboardApiTest, NodesTheDeadOnesLast) {
  *state_.add_nodes() = Node("gone", v1::NODE_STATE_DEAD, 1);
  *state_.add_nodes() = Node("young", v1::NODE_STATE_ALIVE, 9);
  *state_.add_nodes() = Node("old", v1::NODE_STATE_DISCONNECTED, 3);
  Start();
  Json json = GetJson("nodes");
  EXPECT_EQ(json["total"], 3);
  EXPECT_EQ(json["offset"], 0);
  EXPECT_EQ(json["limit"], 100);
  EXPECT_THAT(Ids(json["nodes"], "node_id"),
              ElementsAre("old", "young", "gone"));
  EXPECT_EQ(json["nodes"][0]["state"], "NODE_STATE_DISCONNECTED");
  json = GetJson("nodes?limit=1&offset=1");
  EXPECT_EQ(json["total"], 3);
  EXPECT_THAT(Ids(json["nodes"], "node_id"), ElementsAre("young"));
  EXPECT_THAT(GetJson("nodes?offset=3")["nodes"], IsEmpty());
  EXPECT_THAT(GetJson("nodes?offset=1000000000&limit=1000")["nodes"],
              IsEmpty());
  EXPECT_THAT(GetJson("nodes?limit=0")["nodes"], IsEmpty());
}

TEST_F(DashboardApiTest, JobsTheNewestFirst) {
  *state_.add_jobs() = Job("ended", v1::JOB_STATE_SUCCEEDED, 10, 0);
  *state_.add_jobs() = Job("waits", v1::JOB_STATE_PENDING, 0, 30);
  *state_.add_jobs() = Job("runs", v1::JOB_STATE_RUNNING, 20, 5);
  Start();
  EXPECT_THAT(Ids(GetJson("jobs")["jobs"], "job_id"),
              ElementsAre("waits", "runs", "ended"));
  const Json page = GetJson("jobs?limit=1&offset=2");
  EXPECT_EQ(page["total"], 3);
  EXPECT_THAT(Ids(page["jobs"], "job_id"), ElementsAre("ended"));
  const Json running = GetJson("jobs?state=Running");
  EXPECT_EQ(running["total"], 1);
  EXPECT_THAT(Ids(running["jobs"], "job_id"), ElementsAre("runs"));
  EXPECT_EQ(GetJson("jobs/runs")["job"]["start_unix_ms"], "20");
  EXPECT_THAT(ErrorOf("jobs/other", 404), HasSubstr("no job other"));
}

TEST_F(DashboardApiTest, ActorsByWhatTheyAre) {
  *state_.add_actors() = Actor("a", v1::ACTOR_STATE_ALIVE, 1);
  *state_.add_actors() = Actor("b", v1::ACTOR_STATE_DEAD, 2);
  *state_.add_actors() = Actor("c", v1::ACTOR_STATE_ALIVE, 2);
  v1::ActorInfo other = Actor("d", v1::ACTOR_STATE_PENDING, 0);
  other.set_class_name("shop::Server");
  other.set_job_id("job-b");
  other.set_node_id("");
  *state_.add_actors() = other;
  Start();
  const Json all = GetJson("actors");
  EXPECT_EQ(all["total"], 4);
  EXPECT_EQ(all["by_state"], Json({{"ACTOR_STATE_ALIVE", 2},
                                   {"ACTOR_STATE_DEAD", 1},
                                   {"ACTOR_STATE_PENDING", 1}}));
  // The newest first, by id where they are as old.
  EXPECT_THAT(Ids(all["actors"], "actor_id"), ElementsAre("b", "c", "a", "d"));
  struct Case {
    std::string query;
    std::vector<std::string> ids;
  };
  for (const Case& wanted : std::vector<Case>{
           {"state=alive", {"c", "a"}},
           {"state=DEAD", {"b"}},
           {"state=living", {"c", "a", "d"}},
           {"state=restarting", {}},
           {"class=Counter", {"b", "c", "a"}},
           {"class=Server", {"d"}},
           {"class=counter", {}},
           {"job=job-b", {"d"}},
           {"job=job", {}},
           {"node=node-a", {"b", "c", "a"}},
           {"node=node-a&state=alive&class=shop&limit=1&offset=1", {"a"}},
           {"limit=2", {"b", "c"}},
           {"limit=0", {}},
       }) {
    const Json json = GetJson("actors?" + wanted.query);
    EXPECT_EQ(Ids(json["actors"], "actor_id"), wanted.ids) << wanted.query;
    // All of them, whatever is wanted.
    EXPECT_EQ(json["by_state"]["ACTOR_STATE_ALIVE"], 2);
  }
  EXPECT_EQ(GetJson("actors/a")["actor"]["class_name"], "shop::Counter");
  EXPECT_THAT(ErrorOf("actors/other", 404), HasSubstr("no actor other"));
}

TEST_F(DashboardApiTest, WhatNodesAndActorsUse) {
  *state_.add_nodes() = Node("busy", v1::NODE_STATE_ALIVE, 1);
  *state_.add_nodes() = Node("silent", v1::NODE_STATE_ALIVE, 2);
  *state_.add_actors() = Actor("a", v1::ACTOR_STATE_ALIVE, 1);
  *state_.add_actors() = Actor("b", v1::ACTOR_STATE_ALIVE, 2);
  options_.usage = [](const std::vector<std::string>& actor_ids) {
    v1::GetUsageResponse usage;
    usage.add_nodes()->set_node_id("busy");
    usage.mutable_nodes(0)->set_cpus_busy(1.5);
    usage.mutable_nodes(0)->set_cpus(8);
    for (const std::string& id : actor_ids) {
      if (id != "a") continue;
      usage.add_actors()->set_actor_id(id);
      usage.mutable_actors(0)->set_memory_bytes(5);
    }
    return usage;
  };
  Start();
  Json json = GetJson("nodes");
  ASSERT_THAT(Ids(json["usage"], "node_id"), ElementsAre("busy"));
  EXPECT_EQ(json["usage"][0]["cpus_busy"], 1.5);
  EXPECT_EQ(json["usage"][0]["cpus"], 8);
  // Of those that are on the page.
  EXPECT_THAT(GetJson("nodes?offset=1")["usage"], IsEmpty());
  json = GetJson("actors");
  ASSERT_THAT(Ids(json["usage"], "actor_id"), ElementsAre("a"));
  EXPECT_EQ(json["usage"][0]["memory_bytes"], "5");
  EXPECT_THAT(GetJson("actors?limit=1")["usage"], IsEmpty());  // "b".
  EXPECT_THAT(GetJson("actors?limit=0")["usage"], IsEmpty());
  EXPECT_EQ(GetJson("actors/a")["usage"]["memory_bytes"], "5");
  EXPECT_FALSE(GetJson("actors/b").contains("usage"));
}

TEST_F(DashboardApiTest, WhereNobodyMeasuresThereIsNoUsage) {
  *state_.add_nodes() = Node("n", v1::NODE_STATE_ALIVE, 1);
  *state_.add_actors() = Actor("a", v1::ACTOR_STATE_ALIVE, 1);
  Start();
  EXPECT_EQ(GetJson("nodes")["usage"], Json::array());
  EXPECT_EQ(GetJson("actors")["usage"], Json::array());
  EXPECT_FALSE(GetJson("actors/a").contains("usage"));
}

// Only those that are shown are copied and written out.
TEST_F(DashboardApiTest, TenThousandActorsAreShownInParts) {
  std::vector<v1::ActorInfo> actors;
  for (int i = 0; i < 10'000; ++i) {
    actors.push_back(
        Actor(absl::StrCat("actor-", 100'000 + i),
              i % 4 == 0 ? v1::ACTOR_STATE_DEAD : v1::ACTOR_STATE_ALIVE, i));
  }
  std::atomic<int> copied = 0;
  options_.state = []() -> v1::GetClusterStateResponse {
    ADD_FAILURE() << "all tables were asked for";
    return {};
  };
  options_.state_fingerprint = [] { return 1; };
  options_.select_state = [&](const auto& tables, const auto& keep) {
    EXPECT_THAT(tables, ElementsAre(v1::TABLE_ACTORS));
    v1::GetClusterStateResponse state;
    for (const v1::ActorInfo& actor : actors) {
      if (!keep(actor)) continue;
      *state.add_actors() = actor;
      ++copied;
    }
    return state;
  };
  Start();
  const httplib::Result answer = Get("actors?limit=100&offset=0");
  ASSERT_TRUE(answer);
  EXPECT_EQ(copied, 100);
  EXPECT_LT(answer->body.size(), 200'000u);
  Json json = Json::parse(answer->body);
  EXPECT_EQ(json["total"], 10'000);
  ASSERT_EQ(json["actors"].size(), 100u);
  EXPECT_EQ(json["actors"][0]["actor_id"], "actor-109999");
  EXPECT_EQ(json["actors"][99]["actor_id"], "actor-109900");
  // All of them, part by part.
  std::vector<std::string> seen;
  for (int offset = 0; offset < 10'000; offset += 1000) {
    for (const std::string& id :
         Ids(GetJson(
                 absl::StrCat("actors?limit=1000&offset=", offset))["actors"],
             "actor_id")) {
      seen.push_back(id);
    }
  }
  EXPECT_EQ(seen.size(), 10'000u);
  EXPECT_TRUE(std::is_sorted(seen.rbegin(), seen.rend()));
  json = GetJson("actors?state=dead&limit=1000&offset=2000");
  EXPECT_EQ(json["total"], 2'500);
  EXPECT_EQ(json["actors"].size(), 500u);
  EXPECT_EQ(json["by_state"]["ACTOR_STATE_ALIVE"], 7'500);
}

TEST_F(DashboardApiTest, AnActorsCalls) {
  options_.inspect_actor =
      [](const std::string& id) -> absl::StatusOr<v1::InspectResponse> {
    if (id != "a") return absl::UnavailableError("it has no process");
    v1::InspectResponse told;
    told.set_calls_done(7);
    told.add_running()->set_method("Add");
    return told;
  };
  Start();
  const Json json = GetJson("actors/a/calls");
  EXPECT_EQ(json["calls"]["calls_done"], "7");
  EXPECT_EQ(json["calls"]["running"][0]["method"], "Add");
  EXPECT_EQ(ErrorOf("actors/b/calls", 503), "it has no process");
  EXPECT_EQ(Get("actors/b/calls")->get_header_value("Retry-After"), "1");
}

TEST_F(DashboardApiTest, RunsAndTheirCurves) {
  options_.list_runs = [](const v1::ListRunsRequest&) {
    v1::ListRunsResponse runs;
    runs.add_runs()->set_run_id("gan-1");
    runs.mutable_runs(0)->set_state(v1::RUN_STATE_RUNNING);
    (*runs.mutable_runs(0)->mutable_metrics())["loss"] = 0.5;
    return runs;
  };
  absl::Mutex mu;
  std::vector<std::string> asked;
  options_.get_run = [&](const v1::GetRunRequest& request)
      -> absl::StatusOr<v1::GetRunResponse> {
    {
      absl::MutexLock lock(&mu);
      asked.push_back(absl::StrCat(request.run_id(), " ", request.max_points(),
                                   request.with_spans() ? " spans" : ""));
    }
    if (request.run_id() != "gan-1") {
      return absl::NotFoundError("the head knows no such run");
    }
    v1::GetRunResponse run;
    run.mutable_run()->set_run_id("gan-1");
    v1::RunCurve* curve = run.add_curves();
    curve->set_metric("loss");
    curve->set_worker(-1);
    curve->add_epochs(0.5);
    curve->add_values(std::numeric_limits<double>::quiet_NaN());
    return run;
  };
  Start();
  EXPECT_EQ(GetJson("runs")["runs"][0]["state"], "RUN_STATE_RUNNING");
  EXPECT_EQ(GetJson("runs")["runs"][0]["metrics"]["loss"], 0.5);
  const Json run = GetJson("runs/gan-1");
  EXPECT_EQ(run["curves"][0]["worker"], -1);
  EXPECT_EQ(run["curves"][0]["epochs"][0], 0.5);
  EXPECT_EQ(run["curves"][0]["values"][0], "NaN");
  GetJson("runs/gan-1?points=2&spans=1");
  EXPECT_EQ(ErrorOf("runs/other?points=5000&spans=0", 404),
            "the head knows no such run");
  absl::MutexLock lock(&mu);
  EXPECT_THAT(asked, ElementsAre("gan-1 500", "gan-1 2 spans", "other 5000"));
}

TEST_F(DashboardApiTest, ImagesAsTheyAre) {
  std::string png = "\x89PNG\r\n\x1a\n";
  png += std::string(100'000, '\0');
  png += "\xff end";
  options_.get_run_image = [&](const v1::GetRunImageRequest& request)
      -> absl::StatusOr<v1::GetRunImageResponse> {
    if (request.run_id() != "r" || request.image_id() != 7) {
      return absl::NotFoundError("there is no such image");
    }
    v1::GetRunImageResponse image;
    image.set_png(png);
    return image;
  };
  Start();
  // As a browser asks, which would take it compressed.
  httplib::Headers headers = kBearer;
  headers.emplace("Accept-Encoding", "gzip, br");
  const httplib::Result answer = Get("runs/r/images/7.png", headers);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->get_header_value("Content-Type"), "image/png");
  EXPECT_EQ(answer->get_header_value("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(answer->get_header_value("Cache-Control"), "no-store");
  EXPECT_TRUE(answer->body == png);
  EXPECT_EQ(ErrorOf("runs/r/images/8.png", 404), "there is no such image");
}

TEST_F(DashboardApiTest, AJsonAnswerIsNotCompressed) {
  for (int i = 0; i < 100; ++i) {
    *state_.add_nodes() =
        Node(absl::StrCat("node-", i), v1::NODE_STATE_ALIVE, i);
  }
  Start();
  httplib::Headers headers = kBearer;
  headers.emplace("Accept-Encoding", "gzip, br");
  const httplib::Result answer = Get("nodes", headers);
  ASSERT_TRUE(answer);
  EXPECT_FALSE(answer->has_header("Content-Encoding"));
  EXPECT_EQ(Json::parse(answer->body)["nodes"].size(), 100u);
}

TEST_F(DashboardApiTest, WhatMakesNoSenseIsRefused) {
  const auto never = [](const auto&) -> absl::StatusOr<v1::GetRunResponse> {
    ADD_FAILURE() << "it was asked for";
    return absl::InternalError("");
  };
  options_.get_run = never;
  options_.get_run_image = [](const auto&) {
    ADD_FAILURE() << "it was asked for";
    return v1::GetRunImageResponse();
  };
  options_.read_log = [](const auto&) -> DashboardServer::LogSource {
    ADD_FAILURE() << "it was asked for";
    return nullptr;
  };
  Start();
  for (const std::string& path : std::vector<std::string>{
           "nodes?limit=-1",
           "nodes?limit=1001",
           "nodes?limit=",
           "nodes?limit=1e2",
           "nodes?limit=99999999999999999999",
           "nodes?offset=-1",
           "actors?limit=x",
           "actors?state=sleeping",
           "actors?state=unspecified",
           "jobs?state=alive",
           "jobs?offset=1000000001",
           "runs/r?points=1",
           "runs/r?points=5001",
           "runs/r?spans=yes",
           "runs/a%20b",
           "runs/" + std::string(129, 'r'),
           "runs/r/images/7",
           "runs/r/images/.png",
           "runs/r/images/x.png",
           "runs/r/images/-1.png",
           "logs",
           "logs?actor=",
           "logs?actor=a&job=b",
           "logs?id=a&job=b",
           "logs?actor=a&tail=-1",
           "logs?actor=a&tail=1000001",
           "logs?actor=a&follow=2",
           "logs?actor=a&skip=-1",
           "logs?actor=a&incarnation=2147483648",
           "logs?actor=a&filter=" + std::string(257, 'f'),
       }) {
    EXPECT_NE(ErrorOf(path, 400), "") << path;
  }
  EXPECT_EQ(ErrorOf("nodes?limit=1001", 400),
            "limit='1001': expected a number from 0 to 1000");
  EXPECT_THAT(ErrorOf("actors?state=sleeping", 400),
              HasSubstr("living, pending, starting, alive"));
  // The connection and the server are as good as before.
  GetJson("nodes");
}

TEST_F(DashboardApiTest, WhatTheHeadDoesNotOfferIsNotFound) {
  Start();
  for (const char* path : {"runs", "runs/r", "runs/r/images/1.png",
                           "actors/a/calls", "logs?actor=a", "timeline"}) {
    EXPECT_THAT(ErrorOf(path, 404), HasSubstr("this head")) << path;
  }
  for (const char* path : {"/api/v1/runs/r/stop", "/api/v1/jobs/j/stop"}) {
    const httplib::Result answer =
        httplib::Client("127.0.0.1", server_->port())
            .Post(path, kBearer, "{}", "application/json");
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 404);
    EXPECT_THAT(answer->body, HasSubstr("this head"));
  }
  for (const char* path : {"nothing", "runs/r/nothing", "state/", "", "%00"}) {
    EXPECT_THAT(ErrorOf(path, 404), HasSubstr("API.md")) << path;
  }
}

TEST_F(DashboardApiTest, DataNeedsTheToken) {
  Start();
  for (const char* path :
       {"state", "nodes", "actors", "actors/a", "actors/a/calls", "jobs",
        "jobs/j", "runs", "runs/r", "runs/r/images/1.png", "logs?id=a",
        "events", "timeline", "prometheus/targets"}) {
    const httplib::Result answer = Get(path, {});
    ASSERT_TRUE(answer) << path;
    EXPECT_EQ(answer->status, 401) << path;
  }
}

TEST_F(DashboardApiTest, HeadTellsOnlyOfTheAnswer) {
  *state_.add_nodes() = Node("n", v1::NODE_STATE_ALIVE, 1);
  Start();
  const httplib::Result answer = httplib::Client("127.0.0.1", server_->port())
                                     .Head("/api/v1/nodes", kBearer);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "");
  EXPECT_EQ(answer->get_header_value("Content-Length"),
            absl::StrCat(Get("nodes")->body.size()));
}

TEST_F(DashboardApiTest, RangesAreNotServed) {
  *state_.add_nodes() = Node("n", v1::NODE_STATE_ALIVE, 1);
  Start();
  for (const char* range :
       {"bytes=0-1", "bytes=100000-100010", "bytes=-5", "bytes=0-0,0-0,0-0"}) {
    httplib::Headers headers = kBearer;
    headers.emplace("Range", range);
    const httplib::Result answer = Get("nodes", headers);
    ASSERT_TRUE(answer) << range;
    EXPECT_EQ(answer->status, 416) << range;
    EXPECT_EQ(answer->body, "") << range;
  }
}

}  // namespace
}  // namespace miniray
