// What the dashboard sends as it happens: news, and logs.

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/dashboard/dashboard_server.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/dashboard/event_reader.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Json = nlohmann::json;

constexpr absl::Duration kLong = EventReader::kLong;
constexpr int kMaxStreams = 16;
const httplib::Headers kBearer = {{"Authorization", "Bearer secret"}};

// A node's log, which says what it is told to.
class FakeLog {
 public:
  // What the dashboard reads from; a request is kept.
  absl::StatusOr<DashboardServer::LogSource> Open(
      const v1::ReadLogRequest& request) {
    absl::MutexLock lock(&mu_);
    requests_.push_back(request);
    ++readers_;
    const std::shared_ptr<void> reader(nullptr, [this](void*) {
      absl::MutexLock lock(&mu_);
      --readers_;
    });
    return [this, reader](absl::Duration timeout) { return Next(timeout); };
  }

  void Say(const std::string& data, int incarnation = 0,
           int64_t lost_bytes = 0) {
    v1::LogChunk chunk;
    chunk.set_data(data);
    chunk.set_incarnation(incarnation);
    chunk.set_lost_bytes(lost_bytes);
    Say(std::move(chunk));
  }
  void Say(v1::LogChunk chunk) {
    absl::MutexLock lock(&mu_);
    chunks_.push_back(std::move(chunk));
  }
  // After what was said.
  void End(const absl::Status& status) {
    absl::MutexLock lock(&mu_);
    end_ = status;
  }

  std::vector<v1::ReadLogRequest> requests() {
    absl::MutexLock lock(&mu_);
    return requests_;
  }
  bool AwaitReaders(int count) {
    const auto are = [this, count]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return readers_ == count;
    };
    absl::MutexLock lock(&mu_);
    return mu_.AwaitWithTimeout(absl::Condition(&are), kLong);
  }

 private:
  absl::StatusOr<std::optional<v1::LogChunk>> Next(absl::Duration timeout) {
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return !chunks_.empty() || end_.has_value();
    };
    absl::MutexLock lock(&mu_);
    std::optional<v1::LogChunk> chunk;
    if (!mu_.AwaitWithTimeout(absl::Condition(&ready), timeout)) return chunk;
    if (chunks_.empty()) return *end_;
    chunk = std::move(chunks_.front());
    chunks_.pop_front();
    return chunk;
  }

  absl::Mutex mu_;
  std::deque<v1::LogChunk> chunks_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
  std::vector<v1::ReadLogRequest> requests_ ABSL_GUARDED_BY(mu_);
  int readers_ ABSL_GUARDED_BY(mu_) = 0;
};

class DashboardStreamsTest : public testing::Test {
 protected:
  DashboardStreamsTest() {
    options_.token = "secret";
    options_.state = [] { return v1::GetClusterStateResponse(); };
    options_.state_fingerprint = [this] { return fingerprint_.load(); };
    options_.await_runs = [this](int64_t version, absl::Duration timeout) {
      const auto news = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(runs_mu_) {
        return runs_ != version;
      };
      absl::MutexLock lock(&runs_mu_);
      runs_mu_.AwaitWithTimeout(absl::Condition(&news), timeout);
      return runs_;
    };
    options_.read_log = [this](const v1::ReadLogRequest& request) {
      return log_.Open(request);
    };
  }

  void Start() {
    auto server = DashboardServer::Start(options_);
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
  }

  std::unique_ptr<EventReader> Follow(const std::string& path) {
    return std::make_unique<EventReader>(server_->port(), "/api/v1/" + path,
                                         kBearer);
  }

  httplib::Result Get(const std::string& path) {
    httplib::Client client("127.0.0.1", server_->port());
    client.set_read_timeout(30);
    return client.Get("/api/v1/" + path, kBearer);
  }

  // Waits until the last event `name` tells this version. False: it did not
  // come.
  static bool AwaitVersion(EventReader* reader, absl::string_view name,
                           int64_t version) {
    size_t count = 1;
    while (true) {
      const auto events = reader->Await(name, count);
      if (events.size() < count) return false;
      if (events.back().data.value("version", int64_t{-1}) == version) {
        return true;
      }
      count = events.size() + 1;
    }
  }

  void SetRuns(int64_t version) {
    absl::MutexLock lock(&runs_mu_);
    runs_ = version;
  }

  std::atomic<uint64_t> fingerprint_ = 1;
  absl::Mutex runs_mu_;
  int64_t runs_ ABSL_GUARDED_BY(runs_mu_) = 7;
  FakeLog log_;
  DashboardServer::Options options_;
  std::unique_ptr<DashboardServer> server_;
};

// --- News.

TEST_F(DashboardStreamsTest, WhoComesHearsHowItIs) {
  Start();
  const auto reader = Follow("events");
  EXPECT_EQ(reader->AwaitStatus(), 200);
  EXPECT_THAT(reader->Await("state", 1), Not(IsEmpty()));
  EXPECT_THAT(reader->Await("runs", 1), Not(IsEmpty()));
  EXPECT_THAT(reader->text(), StartsWith("retry: 1000\n\n"));
}

// Of some changes, most: the machine may be busy.
TEST_F(DashboardStreamsTest, NewsComesWithinASecond) {
  Start();
  const auto reader = Follow("events");
  // The first look at all.
  ASSERT_TRUE(AwaitVersion(reader.get(), "state", 1));
  ASSERT_TRUE(AwaitVersion(reader.get(), "runs", 7));
  std::vector<absl::Duration> state_took, runs_took;
  for (int i = 0; i < 5; ++i) {
    absl::Time begin = absl::Now();
    ++fingerprint_;
    ASSERT_TRUE(AwaitVersion(reader.get(), "state", 2 + i));
    state_took.push_back(absl::Now() - begin);

    begin = absl::Now();
    SetRuns(100 + i);
    ASSERT_TRUE(AwaitVersion(reader.get(), "runs", 100 + i));
    runs_took.push_back(absl::Now() - begin);
  }
  std::sort(state_took.begin(), state_took.end());
  std::sort(runs_took.begin(), runs_took.end());
  EXPECT_LT(state_took[2], absl::Seconds(1));
  EXPECT_LT(runs_took[2], absl::Seconds(1));
}

TEST_F(DashboardStreamsTest, WithoutRunsThereIsNewsOfTheState) {
  options_.await_runs = nullptr;
  options_.state_fingerprint = nullptr;  // It is made of the tables.
  std::atomic<int> actors = 0;
  options_.state = [&actors] {
    v1::GetClusterStateResponse state;
    for (int i = 0; i < actors; ++i) state.add_actors();
    return state;
  };
  Start();
  const auto reader = Follow("events");
  ASSERT_TRUE(AwaitVersion(reader.get(), "state", 1));
  ++actors;
  EXPECT_TRUE(AwaitVersion(reader.get(), "state", 2));
  server_->Shutdown();  // It uses `actors`.
}

TEST_F(DashboardStreamsTest, EventsNeedTheToken) {
  Start();
  EventReader reader(server_->port(), "/api/v1/events", {});
  EXPECT_EQ(reader.AwaitStatus(), 401);
}

// A visitor for whom there is no room is told so; the others' pages answer.
TEST_F(DashboardStreamsTest, StreamsHaveAnEnd) {
  Start();
  std::vector<std::unique_ptr<EventReader>> readers;
  for (int i = 0; i < kMaxStreams; ++i) {
    readers.push_back(Follow(i % 2 == 0 ? "events" : "logs?id=a&follow=1"));
    ASSERT_EQ(readers.back()->AwaitStatus(), 200) << i;
  }
  for (const char* path : {"events", "logs?id=a&follow=1", "logs?id=a"}) {
    const httplib::Result answer = Get(path);
    ASSERT_TRUE(answer) << path;
    EXPECT_EQ(answer->status, 503) << path;
    EXPECT_EQ(answer->get_header_value("Retry-After"), "5");
    EXPECT_THAT(std::string(Json::parse(answer->body)["error"]),
                HasSubstr("16 streams"));
  }
  EXPECT_EQ(Get("state")->status, 200);
  // One that leaves makes room, once it is noticed.
  readers.pop_back();
  const absl::Time deadline = absl::Now() + kLong;
  int status = 0;
  while (status != 200 && absl::Now() < deadline) {
    const auto reader = Follow("events");
    status = reader->AwaitStatus();
  }
  EXPECT_EQ(status, 200);
}

TEST_F(DashboardStreamsTest, AShutdownEndsThem) {
  Start();
  const auto news = Follow("events");
  const auto log = Follow("logs?id=a&follow=1");
  EXPECT_EQ(news->AwaitStatus(), 200);
  EXPECT_EQ(log->AwaitStatus(), 200);
  const absl::Time begin = absl::Now();
  server_->Shutdown();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
  EXPECT_TRUE(news->AwaitEnd());
  EXPECT_TRUE(log->AwaitEnd());
  EXPECT_TRUE(log_.AwaitReaders(0));
}

// --- Logs.

TEST_F(DashboardStreamsTest, ALogAsText) {
  Start();
  log_.Say("one\ntw");
  log_.Say("o \xc3");
  log_.Say("\xa9\n\xff");
  log_.End(absl::OutOfRangeError(""));
  const httplib::Result answer = Get("logs?actor=a&tail=7");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->get_header_value("Content-Type"),
            "text/plain; charset=utf-8");
  EXPECT_EQ(answer->body, "one\ntwo \u00e9\n\ufffd");
  EXPECT_TRUE(log_.AwaitReaders(0));
  ASSERT_THAT(log_.requests(), SizeIs(1));
  const v1::ReadLogRequest request = log_.requests()[0];
  EXPECT_EQ(request.actor_id(), "a");
  EXPECT_EQ(request.tail_lines(), 7);
  EXPECT_FALSE(request.follow());
}

TEST_F(DashboardStreamsTest, WhatIsAskedOfTheHead) {
  Start();
  log_.End(absl::OutOfRangeError(""));
  for (const char* query : {"job=j", "id=x", "id=x&skip=5&incarnation=2",
                            "id=x&skip=5&tail=3", "id=x&tail=0"}) {
    EXPECT_EQ(Get(absl::StrCat("logs?", query))->status, 200) << query;
  }
  std::vector<std::string> asked;
  for (const v1::ReadLogRequest& request : log_.requests()) {
    asked.push_back(absl::StrCat(
        request.job_id(), "/", request.any_id(), " ", request.tail_lines(), " ",
        request.skip_bytes(), " ", request.min_incarnation()));
  }
  EXPECT_THAT(asked, ElementsAre("j/ 1000 0 0", "/x 1000 0 0", "/x 0 5 2",
                                 "/x 3 5 0", "/x 0 0 0"));
}

TEST_F(DashboardStreamsTest, OnlyTheLinesThatAreAskedFor) {
  Start();
  log_.Say("Loss 1\nother\nthe l");
  log_.Say("oss 2\nloss 3");
  log_.End(absl::OutOfRangeError(""));
  EXPECT_EQ(Get("logs?id=a&filter=loss")->body, "Loss 1\nthe loss 2\nloss 3");
}

TEST_F(DashboardStreamsTest, AVeryLongLogLosesItsBeginning) {
  Start();
  for (int i = 0; i < 20; ++i) log_.Say(std::string(1 << 20, 'a' + i));
  log_.End(absl::OutOfRangeError(""));
  const httplib::Result answer = Get("logs?id=a");
  ASSERT_TRUE(answer);
  constexpr size_t kKept = 8 << 20;
  EXPECT_THAT(answer->body.substr(0, 100),
              StartsWith(absl::StrCat("[miniray: ", (20 << 20) - kKept,
                                      " bytes before this are left out]\n")));
  EXPECT_EQ(answer->body.substr(answer->body.size() - kKept, 3), "mmm");
  EXPECT_EQ(answer->body.back(), 't');
}

TEST_F(DashboardStreamsTest, ErrorsOfALog) {
  Start();
  log_.Say("begins");
  log_.End(absl::UnavailableError("the node is away"));
  const httplib::Result broken = Get("logs?id=a");
  ASSERT_TRUE(broken);
  EXPECT_EQ(broken->status, 503);
  EXPECT_THAT(broken->body, HasSubstr("the node is away"));
}

TEST_F(DashboardStreamsTest, ALogThatIsNotThere) {
  options_.read_log = [](const v1::ReadLogRequest&)
      -> absl::StatusOr<DashboardServer::LogSource> {
    return absl::NotFoundError("no actor is called 'a'");
  };
  Start();
  for (const char* path : {"logs?id=a", "logs?id=a&follow=1"}) {
    const httplib::Result answer = Get(path);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 404);
    EXPECT_EQ(Json::parse(answer->body)["error"], "no actor is called 'a'");
  }
}

TEST_F(DashboardStreamsTest, ALogIsFollowed) {
  Start();
  const auto reader = Follow("logs?actor=a&follow=1&tail=2");
  EXPECT_EQ(reader->AwaitStatus(), 200);
  // Behind what the tail leaves out: no loss.
  log_.Say("one\n", 0, 100);
  auto events = reader->Await("log", 1);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].data,
            Json({{"text", "one\n"}, {"incarnation", 0}, {"position", 104}}));
  log_.Say("two \xe2\x82");
  ASSERT_THAT(events = reader->Await("log", 2), SizeIs(2));
  EXPECT_EQ(events[1].data["text"], "two ");
  EXPECT_EQ(events[1].data["position"], 108);
  log_.Say("\xac\n\"quoted\"\r\n");
  ASSERT_THAT(events = reader->Await("log", 3), SizeIs(3));
  EXPECT_EQ(events[2].data["text"], "\u20ac\n\"quoted\"\r\n");
  EXPECT_EQ(events[2].data["position"], 122);  // 108 + 2 + 12
  EXPECT_THAT(reader->Await("notice", 0), IsEmpty());

  // What made way before it was read, and what the disk did not take.
  log_.Say("late\n", 0, 50);
  auto notices = reader->Await("notice", 1);
  ASSERT_THAT(notices, SizeIs(1));
  EXPECT_THAT(std::string(notices[0].data["text"]), StartsWith("50 bytes"));
  ASSERT_THAT(events = reader->Await("log", 4), SizeIs(4));
  EXPECT_EQ(events[3].data["position"], 177);
  v1::LogChunk full;
  full.set_error("the disk is full");
  log_.Say(full);
  ASSERT_THAT(notices = reader->Await("notice", 2), SizeIs(2));
  EXPECT_EQ(notices[1].data["text"], "the disk is full");

  // The actor's next process counts anew.
  log_.Say("again\n", 1);
  ASSERT_THAT(events = reader->Await("log", 5), SizeIs(5));
  EXPECT_EQ(events[4].data,
            Json({{"text", "again\n"}, {"incarnation", 1}, {"position", 6}}));
  log_.End(absl::OutOfRangeError(""));
  EXPECT_THAT(reader->Await("end", 1), SizeIs(1));
  EXPECT_TRUE(reader->AwaitEnd());
  EXPECT_TRUE(log_.AwaitReaders(0));
}

TEST_F(DashboardStreamsTest, WhoComesBackGoesOnWhereItWas) {
  Start();
  const auto reader = Follow("logs?actor=a&follow=1&incarnation=3&skip=40");
  EXPECT_EQ(reader->AwaitStatus(), 200);
  log_.Say("more\n", 3);
  const auto events = reader->Await("log", 1);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].data["position"], 45);
  ASSERT_THAT(log_.requests(), SizeIs(1));
  EXPECT_TRUE(log_.requests()[0].follow());
  EXPECT_EQ(log_.requests()[0].tail_lines(), 0);
  EXPECT_EQ(log_.requests()[0].skip_bytes(), 40);
  EXPECT_EQ(log_.requests()[0].min_incarnation(), 3);
}

TEST_F(DashboardStreamsTest, AFollowedLogIsFiltered) {
  Start();
  const auto reader = Follow("logs?id=a&follow=1&filter=B");
  log_.Say("a\nb\nab");
  auto events = reader->Await("log", 1);
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].data["text"], "b\n");
  EXPECT_EQ(events[0].data["position"], 4);  // Not what may become a line.
  log_.End(absl::UnavailableError("the node is away"));
  ASSERT_THAT(events = reader->Await("log", 2), SizeIs(2));
  EXPECT_EQ(events[1].data["text"], "ab");
  const auto errors = reader->Await("error", 1);
  ASSERT_THAT(errors, SizeIs(1));
  EXPECT_EQ(errors[0].data["error"], "the node is away");
  EXPECT_TRUE(reader->AwaitEnd());
}

TEST_F(DashboardStreamsTest, WhoLeavesEndsTheReading) {
  Start();
  auto reader = Follow("logs?id=a&follow=1");
  EXPECT_EQ(reader->AwaitStatus(), 200);
  EXPECT_TRUE(log_.AwaitReaders(1));
  reader.reset();
  // Though nothing more is printed.
  EXPECT_TRUE(log_.AwaitReaders(0));
}

}  // namespace
}  // namespace miniray
