#include "runtime/worker/log_server.h"

#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "runtime/worker/log_file.h"
#include "tests/runtime/base/temp_folder.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LogServerTest : public ::testing::Test {
 protected:
  static v1::ReadNodeLog Request(uint64_t id, bool follow = false) {
    v1::ReadNodeLog request;
    request.set_request_id(id);
    request.set_actor_id("a");
    request.set_follow(follow);
    request.set_window_bytes(1 << 20);
    return request;
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::app) << text;
  }

  void SetPaths(std::map<int, std::string> paths) {
    absl::MutexLock lock(&paths_mu_);
    paths_ = std::move(paths);
  }

  // Waits until the reader has this text.
  bool Gets(uint64_t id, const std::string& text) {
    absl::MutexLock lock(&mu_);
    auto there = [&] {
      mu_.AssertHeld();
      return text_[id] == text;
    };
    return mu_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(20));
  }
  bool Ends(uint64_t id) {
    absl::MutexLock lock(&mu_);
    auto there = [&] {
      mu_.AssertHeld();
      return ends_.contains(id);
    };
    return mu_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(20));
  }
  std::string Text(uint64_t id) {
    absl::MutexLock lock(&mu_);
    return text_[id];
  }
  std::string ErrorOf(uint64_t id) {
    absl::MutexLock lock(&mu_);
    return ends_[id];
  }

  TempFolder folder_;
  absl::Mutex paths_mu_;
  std::map<int, std::string> paths_ ABSL_GUARDED_BY(paths_mu_) = {
      {0, folder_ / "log"}};
  std::atomic<bool> lives_ = false;
  std::atomic<bool> room_ = true;

  absl::Mutex mu_;
  std::map<uint64_t, std::string> text_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, int64_t> lost_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::string> ends_ ABSL_GUARDED_BY(mu_);  // Errors.

  std::map<uint64_t, std::vector<std::string>> notices_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, int> incarnations_ ABSL_GUARDED_BY(mu_);  // The last.

  LogServer server_{
      {.find = [this](const v1::ReadNodeLog& request)
           -> absl::StatusOr<LogServer::Log> {
         if (request.actor_id() != "a") {
           return absl::NotFoundError("no such actor");
         }
         absl::MutexLock lock(&paths_mu_);
         return LogServer::Log{paths_, [this] { return lives_.load(); }};
       },
       .send =
           [this](v1::LogChunk chunk) {
             absl::MutexLock lock(&mu_);
             if (!room_ && !chunk.last()) return false;
             if (!chunk.last() && !chunk.error().empty()) {
               notices_[chunk.request_id()].push_back(chunk.error());
             }
             text_[chunk.request_id()] += chunk.data();
             lost_[chunk.request_id()] += chunk.lost_bytes();
             if (chunk.last()) ends_[chunk.request_id()] = chunk.error();
             incarnations_[chunk.request_id()] = chunk.incarnation();
             return true;
           }}};
};

TEST_F(LogServerTest, SendsWhatThereIs) {
  Write("log", "one\ntwo\nthree");
  server_.Read(Request(1));
  ASSERT_TRUE(Ends(1));
  EXPECT_EQ(Text(1), "one\ntwo\nthree");
  EXPECT_EQ(ErrorOf(1), "");
  // It lives, but nobody asked to follow.
  lives_ = true;
  server_.Read(Request(2));
  ASSERT_TRUE(Ends(2));
  EXPECT_EQ(Text(2), "one\ntwo\nthree");
}

TEST_F(LogServerTest, TheLastLines) {
  Write("log", "one\ntwo\nthree\n");
  Write("older", "zero\n");
  SetPaths({{0, folder_ / "older"}, {1, folder_ / "log"}});
  v1::ReadNodeLog request = Request(1);
  request.set_tail_lines(2);
  server_.Read(request);
  ASSERT_TRUE(Ends(1));
  EXPECT_EQ(Text(1), "two\nthree\n");
}

TEST_F(LogServerTest, AfterTheLastLinesTheReaderKnowsWhereItIs) {
  Write("log", "one\ntwo\nthree\n");
  v1::ReadNodeLog request = Request(1);
  request.set_tail_lines(1);
  server_.Read(request);
  ASSERT_TRUE(Ends(1));
  EXPECT_EQ(Text(1), "three\n");
  {
    absl::MutexLock lock(&mu_);
    EXPECT_EQ(lost_[1], 8);  // "one\ntwo\n"
  }
  // So it can go on.
  Write("log", "four\n");
  request = Request(2);
  request.set_skip_bytes(8 + 6);
  server_.Read(request);
  ASSERT_TRUE(Ends(2));
  EXPECT_EQ(Text(2), "four\n");
}

TEST_F(LogServerTest, WhatTheDiskDidNotTakeIsTold) {
  auto file = LogFile::Open(
      std::filesystem::canonical(folder_.path()).string() + "/log", {});
  ASSERT_TRUE(file.ok()) << file.status();
  lives_ = true;
  server_.Read(Request(1, true));
  file->Append("one\n");
  ASSERT_TRUE(Gets(1, "one\n"));
  const auto told = [this](size_t notices) {
    absl::MutexLock lock(&mu_);
    auto there = [&] {
      mu_.AssertHeld();
      return notices_[1].size() == notices;
    };
    return mu_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(20));
  };
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {4, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  file->Append("12345");
  // At once, and the sum at the end.
  const bool told_once = told(1);
  file->Append("678");
  lives_ = false;
  const bool told_twice = told(2);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_TRUE(told_once);
  EXPECT_TRUE(told_twice);
  ASSERT_TRUE(Ends(1));
  EXPECT_EQ(ErrorOf(1), "");
  EXPECT_EQ(Text(1), "one\n");
  const std::string where =
      absl::StrCat("output lost: File too large in ",
                   std::filesystem::path(file->path()).parent_path().string());
  absl::MutexLock lock(&mu_);
  EXPECT_THAT(notices_[1], ElementsAre(absl::StrCat(where, ", 5 bytes"),
                                       absl::StrCat(where, ", 8 bytes")));
}

TEST_F(LogServerTest, WhatWasReadElsewhereIsNotSkippedHere) {
  Write("log.2", "two\n");
  SetPaths({{2, folder_ / "log.2"}});
  v1::ReadNodeLog request = Request(1);
  request.set_min_incarnation(1);  // On a node that is gone.
  request.set_skip_bytes(3);
  server_.Read(request);
  ASSERT_TRUE(Ends(1));
  EXPECT_EQ(Text(1), "two\n");
}

TEST_F(LogServerTest, OfSeveralProcessesInOrder) {
  Write("first", "1\n");
  Write("log", "2\n");
  SetPaths({{0, folder_ / "first"}, {1, folder_ / "log"}});
  v1::ReadNodeLog request = Request(1);
  request.set_skip_bytes(1);
  server_.Read(request);
  ASSERT_TRUE(Ends(1));
  EXPECT_EQ(Text(1), "\n2\n");
  request = Request(2);
  request.set_skip_bytes(3);
  server_.Read(request);
  ASSERT_TRUE(Ends(2));
  EXPECT_EQ(Text(2), "\n");
}

TEST_F(LogServerTest, FollowsUntilTheProcessHasEnded) {
  lives_ = true;
  Write("log", "one\n");
  server_.Read(Request(1, true));
  ASSERT_TRUE(Gets(1, "one\n"));
  Write("log", "two\n");
  ASSERT_TRUE(Gets(1, "one\ntwo\n"));
  Write("log", "last");
  lives_ = false;
  ASSERT_TRUE(Ends(1));
  EXPECT_EQ(Text(1), "one\ntwo\nlast");
}

TEST_F(LogServerTest, FollowsTheProcessesThatComeLater) {
  lives_ = true;
  Write("log", "one\n");
  v1::ReadNodeLog request = Request(1, true);
  request.set_tail_lines(1);
  server_.Read(request);
  ASSERT_TRUE(Gets(1, "one\n"));
  // It ends and the next one starts before anybody looks; the one after that is
  // lost elsewhere.
  Write("log", "last of the first\n");
  Write("log.1", "two\nlines\n");
  SetPaths({{0, folder_ / "log"}, {1, folder_ / "log.1"}});
  ASSERT_TRUE(Gets(1, "one\nlast of the first\ntwo\nlines\n"));
  Write("log.3", "three\n");
  SetPaths({{1, folder_ / "log.1"}, {3, folder_ / "log.3"}});
  ASSERT_TRUE(Gets(1, "one\nlast of the first\ntwo\nlines\nthree\n"));
  lives_ = false;
  ASSERT_TRUE(Ends(1));
  EXPECT_EQ(ErrorOf(1), "");
  absl::MutexLock lock(&mu_);
  EXPECT_EQ(incarnations_[1], 3);
}

TEST_F(LogServerTest, FromOneProcessOn) {
  Write("log", "0\n");
  Write("log.1", "1\n");
  Write("log.2", "2\n");
  SetPaths(
      {{0, folder_ / "log"}, {1, folder_ / "log.1"}, {2, folder_ / "log.2"}});
  v1::ReadNodeLog request = Request(1);
  request.set_min_incarnation(1);
  request.set_skip_bytes(1);
  server_.Read(request);
  ASSERT_TRUE(Ends(1));
  EXPECT_EQ(Text(1), "\n2\n");
  // Of later ones nothing is here.
  request = Request(2);
  request.set_min_incarnation(3);
  server_.Read(request);
  ASSERT_TRUE(Ends(2));
  EXPECT_EQ(ErrorOf(2), "");
  absl::MutexLock lock(&mu_);
  EXPECT_EQ(incarnations_[2], 2);
}

TEST_F(LogServerTest, WaitsForALogThatIsNotThereYet) {
  lives_ = true;
  server_.Read(Request(1, true));
  // One after the other: when this one has ended, the first was looked for.
  server_.Read(Request(9));
  ASSERT_TRUE(Ends(9));
  SetPaths({});
  server_.Read(Request(2, true));
  // By then it has looked for both.
  server_.Read(Request(3));
  ASSERT_TRUE(Ends(3));
  Write("log", "one\n");
  ASSERT_TRUE(Gets(1, "one\n"));
  SetPaths({{0, folder_ / "log"}});
  ASSERT_TRUE(Gets(2, "one\n"));
  lives_ = false;
  ASSERT_TRUE(Ends(1));
  ASSERT_TRUE(Ends(2));
}

TEST_F(LogServerTest, SendsNoMoreThanWasGranted) {
  Write("log", std::string(1000, 'x'));
  v1::ReadNodeLog request = Request(1);
  request.set_window_bytes(300);
  server_.Read(request);
  ASSERT_TRUE(Gets(1, std::string(300, 'x')));
  // Another reader is not held up.
  server_.Read(Request(2));
  ASSERT_TRUE(Ends(2));
  EXPECT_EQ(Text(2).size(), 1000);
  EXPECT_EQ(Text(1).size(), 300);
  v1::GrantNodeLog grant;
  grant.set_request_id(1);
  grant.set_bytes(700);
  server_.Grant(grant);
  ASSERT_TRUE(Gets(1, std::string(1000, 'x')));
  grant.set_bytes(1);
  server_.Grant(grant);
  ASSERT_TRUE(Ends(1));
}

TEST_F(LogServerTest, WaitsForRoomOnTheWayToTheHead) {
  Write("log", "text");
  room_ = false;
  server_.Read(Request(1));
  server_.Read(Request(2));
  room_ = true;
  ASSERT_TRUE(Ends(1));
  ASSERT_TRUE(Ends(2));
  EXPECT_EQ(Text(1), "text");
}

TEST_F(LogServerTest, ErrorsAreTold) {
  v1::ReadNodeLog request = Request(1);
  request.set_actor_id("b");
  server_.Read(request);
  ASSERT_TRUE(Ends(1));
  EXPECT_EQ(ErrorOf(1), "no such actor");
  server_.Read(Request(2));  // No file.
  ASSERT_TRUE(Ends(2));
  EXPECT_THAT(ErrorOf(2), HasSubstr("log"));
}

TEST_F(LogServerTest, WhoLeavesGetsNothingMore) {
  lives_ = true;
  Write("log", "one\n");
  server_.Read(Request(1, true));
  server_.Read(Request(2, true));
  ASSERT_TRUE(Gets(1, "one\n"));
  ASSERT_TRUE(Gets(2, "one\n"));
  server_.End(1);
  Write("log", "two\n");
  ASSERT_TRUE(Gets(2, "one\ntwo\n"));
  server_.EndAll();
  server_.Read(Request(3, true));
  ASSERT_TRUE(Gets(3, "one\ntwo\n"));
  Write("log", "three\n");
  ASSERT_TRUE(Gets(3, "one\ntwo\nthree\n"));
  EXPECT_EQ(Text(1), "one\n");
  EXPECT_EQ(Text(2), "one\ntwo\n");
}

// Readers leave while their log is looked for.
TEST_F(LogServerTest, WhoLeavesWhileHisLogIsReadGetsNothing) {
  Write("log", "text\n");
  for (const bool all : {false, true}) {
    absl::Mutex mu;
    int looks = 0;
    bool left = false;
    absl::Mutex sent_mu;
    std::vector<std::string> sent;
    bool last = false;
    LogServer server(
        {.find = [&](const v1::ReadNodeLog&) -> absl::StatusOr<LogServer::Log> {
           absl::MutexLock lock(&mu);
           ++looks;
           mu.Await(absl::Condition(&left));
           return LogServer::Log{{{0, folder_ / "log"}}, [] { return false; }};
         },
         .send =
             [&](v1::LogChunk chunk) {
               absl::MutexLock lock(&sent_mu);
               sent.push_back(absl::StrCat(chunk.request_id(), chunk.data()));
               last = last || chunk.last();
               return true;
             }});
    server.Read(Request(1));
    {
      absl::MutexLock lock(&mu);
      auto looked = [&] { return looks > 0; };
      mu.Await(absl::Condition(&looked));
    }
    if (all) {
      server.EndAll();
      server.Read(Request(1));  // Another's, of the next stream.
    } else {
      server.End(1);
      server.Read(Request(2));
    }
    {
      absl::MutexLock lock(&mu);
      left = true;
    }
    absl::MutexLock lock(&sent_mu);
    sent_mu.Await(absl::Condition(&last));
    const std::string id = all ? "1" : "2";
    EXPECT_THAT(sent, ElementsAre(id + "text\n", id));
  }
}

TEST_F(LogServerTest, SaysWhatMadeWayBeforeItWasRead) {
  auto file = LogFile::Open(folder_ / "log", {.max_bytes = 6, .max_files = 2});
  ASSERT_TRUE(file.ok());
  for (const char* line : {"one\n", "two\n", "three\n", "four\n"}) {
    file->Append(line);
  }
  server_.Read(Request(1));
  EXPECT_TRUE(Gets(1, "three\nfour\n"));
  ASSERT_TRUE(Ends(1));
  // Who has read the first eight bytes misses nothing; who had read four does.
  v1::ReadNodeLog request = Request(2);
  request.set_skip_bytes(8 + 6);
  server_.Read(request);
  EXPECT_TRUE(Gets(2, "four\n"));
  ASSERT_TRUE(Ends(2));
  request = Request(3);
  request.set_skip_bytes(4);
  server_.Read(request);
  EXPECT_TRUE(Gets(3, "three\nfour\n"));
  ASSERT_TRUE(Ends(3));
  absl::MutexLock lock(&mu_);
  EXPECT_EQ(lost_[1], 8);
  EXPECT_EQ(lost_[2], 0);
  EXPECT_EQ(lost_[3], 4);
}

}  // namespace
}  // namespace miniray
