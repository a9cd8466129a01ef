// What under /api/v1/ changes something, and who may.

#include <httplib.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/head.pb.h"
#include "proto/run.pb.h"
#include "tests/runtime/dashboard/dashboard_api_testutil.h"
#include "tests/runtime/dashboard/raw_connection.h"

namespace miniray {
namespace {

using ::testing::HasSubstr;

class DashboardWriteTest : public DashboardApiTest {
 protected:
  DashboardWriteTest() {
    options_.stop_run = [this](const v1::StopRunRequest& request)
        -> absl::StatusOr<v1::StopRunResponse> {
      if (request.run_id() == "ended") {
        return absl::FailedPreconditionError("the run has ended");
      }
      if (request.run_id() != "r") return absl::NotFoundError("no such run");
      ++stops_;
      return v1::StopRunResponse();
    };
    options_.stop_job = [this](const v1::StopJobRequest& request)
        -> absl::StatusOr<v1::StopJobResponse> {
      if (request.job_id() != "j") return absl::NotFoundError("no such job");
      ++stops_;
      return v1::StopJobResponse();
    };
  }

  std::string Own() const {
    return absl::StrCat("http://127.0.0.1:", server_->port());
  }

  int Post(const std::string& path, const httplib::Headers& headers,
           const std::string& content_type = "application/json",
           const std::string& body = "{}") {
    const httplib::Result answer = httplib::Client("127.0.0.1", server_->port())
                                       .Post(path, headers, body, content_type);
    EXPECT_TRUE(answer) << path << ": " << answer.error();
    return answer ? answer->status : 0;
  }

  // What comes for these lines; "HOST" stands for the server's own address.
  std::string Say(std::string request) {
    const size_t host = request.find("HOST");
    if (host != std::string::npos) {
      request.replace(host, 4, absl::StrCat("127.0.0.1:", server_->port()));
    }
    RawConnection connection(server_->port());
    EXPECT_TRUE(connection.Say(request));
    return connection.ReadToEnd();
  }

  std::atomic<int> stops_ = 0;
};

constexpr char kStopRun[] = "/api/v1/runs/r/stop";
constexpr char kStopJob[] = "/api/v1/jobs/j/stop";

TEST_F(DashboardWriteTest, WithTheTokenInAHeader) {
  Start();
  struct Case {
    std::string what;
    httplib::Headers headers;
    int status;
  };
  const std::pair<std::string, std::string> bearer = {"Authorization",
                                                      "Bearer secret"};
  const std::string port = absl::StrCat(":", server_->port());
  int expected = 0;
  for (const char* path : {kStopRun, kStopJob}) {
    for (const Case& one : std::vector<Case>{
             {"the token alone", {bearer}, 200},
             {"a page of ours", {bearer, {"Origin", Own()}}, 200},
             {"by another name",
              {bearer,
               {"Host", "localhost" + port},
               {"Origin", "http://localhost" + port}},
              200},
             {"nothing", {}, 401},
             {"a page of ours without it", {{"Origin", Own()}}, 401},
             {"a wrong one", {{"Authorization", "Bearer secre"}}, 401},
             {"not as a bearer", {{"Authorization", "secret"}}, 401},
             {"another site", {bearer, {"Origin", "http://evil.example"}}, 403},
             {"a sandboxed page", {bearer, {"Origin", "null"}}, 403},
             {"another port", {bearer, {"Origin", "http://127.0.0.1:1"}}, 403},
             {"a rebound name",
              {bearer,
               {"Host", "evil.example"},
               {"Origin", "http://evil.example"}},
              403},
         }) {
      EXPECT_EQ(Post(path, one.headers), one.status)
          << path << ": " << one.what;
      expected += one.status == 200 ? 1 : 0;
      EXPECT_EQ(stops_, expected) << path << ": " << one.what;
    }
    // Not in the address, which is remembered and passed on.
    EXPECT_EQ(Post(std::string(path) + "?token=secret", {}), 401);
    // The token is what counts: no header of a form is asked for.
    EXPECT_EQ(Post(path, {bearer}, "text/plain", ""), 200);
    EXPECT_EQ(stops_, ++expected);
  }
}

TEST_F(DashboardWriteTest, WithoutATokenOnlyPagesOfOurs) {
  options_.token = "";
  Start();
  struct Case {
    std::string what;
    httplib::Headers headers;
    std::string content_type;
    int status;
  };
  const std::string port = absl::StrCat(":", server_->port());
  int expected = 0;
  for (const char* path : {kStopRun, kStopJob}) {
    for (const Case& one : std::vector<Case>{
             {"ours", {{"Origin", Own()}}, "application/json", 200},
             {"with its charset",
              {{"Origin", Own()}},
              "Application/JSON; charset=utf-8",
              200},
             {"by another name",
              {{"Host", "localhost" + port},
               {"Origin", "http://localhost" + port}},
              "application/json",
              200},
             {"it does not say where it is from", {}, "application/json", 403},
             {"text", {{"Origin", Own()}}, "text/plain", 403},
             {"a form",
              {{"Origin", Own()}},
              "application/x-www-form-urlencoded",
              403},
             {"no JSON", {{"Origin", Own()}}, "application/jsonp", 403},
             {"another site",
              {{"Origin", "http://evil.example"}},
              "application/json",
              403},
             {"a sandboxed page",
              {{"Origin", "null"}},
              "application/json",
              403},
             {"another port",
              {{"Origin", "http://127.0.0.1:1"}},
              "application/json",
              403},
             {"another of our names",
              {{"Origin", "http://localhost" + port}},
              "application/json",
              403},
             {"a rebound name",
              {{"Host", "evil.example"}, {"Origin", "http://evil.example"}},
              "application/json",
              403},
         }) {
      EXPECT_EQ(Post(path, one.headers, one.content_type), one.status)
          << path << ": " << one.what;
      expected += one.status == 200 ? 1 : 0;
      EXPECT_EQ(stops_, expected) << path << ": " << one.what;
    }
  }
}

TEST_F(DashboardWriteTest, ErrorsHaveTheirStatus) {
  Start();
  EXPECT_EQ(Post("/api/v1/runs/other/stop", kBearer), 404);
  EXPECT_EQ(Post("/api/v1/runs/ended/stop", kBearer), 409);
  EXPECT_EQ(Post("/api/v1/runs/a%20b/stop", kBearer), 400);
  EXPECT_EQ(Post("/api/v1/jobs/other/stop", kBearer), 404);
  EXPECT_EQ(stops_, 0);
}

TEST_F(DashboardWriteTest, OtherMethodsAreNotAllowed) {
  Start();
  for (const char* path : {kStopRun, kStopJob}) {
    const httplib::Result got =
        httplib::Client("127.0.0.1", server_->port()).Get(path, kBearer);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->status, 405);
    EXPECT_EQ(got->get_header_value("Allow"), "POST");
  }
  for (const char* path :
       {"/", "/api/v1/state", "/api/v1/runs", "/api/v1/runs/r",
        "/api/v1/runs/r/images/1.png", "/api/v1/events", "/nothing",
        "/api/v1/runs/r/stop/now"}) {
    const httplib::Result posted =
        httplib::Client("127.0.0.1", server_->port())
            .Post(path, kBearer, "{}", "application/json");
    ASSERT_TRUE(posted) << path;
    EXPECT_EQ(posted->status, 405) << path;
    EXPECT_EQ(posted->get_header_value("Allow"), "GET, HEAD") << path;
  }
  for (const char* method : {"PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"}) {
    for (const char* path : {kStopRun, "/api/v1/state"}) {
      EXPECT_THAT(Say(absl::StrCat(method, " ", path,
                                   " HTTP/1.1\r\nHost: HOST\r\n"
                                   "Authorization: Bearer secret\r\n\r\n")),
                  HasSubstr("HTTP/1.1 405 "))
          << method << " " << path;
    }
  }
  EXPECT_EQ(stops_, 0);
}

TEST_F(DashboardWriteTest, ABodyIsSmallAndSaysHowLongItIs) {
  Start();
  const std::string begin =
      "POST /api/v1/runs/r/stop HTTP/1.1\r\nHost: HOST\r\n"
      "Authorization: Bearer secret\r\n";
  // As `curl -X POST` sends it.
  EXPECT_THAT(Say(begin + "Connection: close\r\n\r\n"),
              HasSubstr("HTTP/1.1 200 "));
  EXPECT_EQ(stops_, 1);
  EXPECT_EQ(Post(kStopRun, kBearer, "application/json", std::string(4096, ' ')),
            200);
  EXPECT_EQ(stops_, 2);
  // What does not come is not waited for.
  EXPECT_THAT(Say(begin + "Content-Length: 4097\r\n\r\n"),
              HasSubstr("HTTP/1.1 413 "));
  EXPECT_THAT(Say(begin + "Content-Length: 99999999999999999999\r\n\r\n"),
              HasSubstr("HTTP/1.1 411 "));
  EXPECT_THAT(Say(begin + "Content-Length: x\r\n\r\n"),
              HasSubstr("HTTP/1.1 411 "));
  EXPECT_THAT(Say(begin + "Content-Length: 0\r\nContent-Length: 5\r\n\r\n"),
              HasSubstr("HTTP/1.1 411 "));
  EXPECT_THAT(Say(begin + "Transfer-Encoding: chunked\r\n\r\n"),
              HasSubstr("HTTP/1.1 411 "));
  EXPECT_THAT(Say(begin + "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"),
              HasSubstr("HTTP/1.1 417 "));
  EXPECT_EQ(stops_, 2);
}

TEST_F(DashboardWriteTest, ASlowBodyIsGivenUp) {
  options_.patience = absl::Milliseconds(200);
  Start();
  EXPECT_THAT(Say("POST /api/v1/runs/r/stop HTTP/1.1\r\nHost: HOST\r\n"
                  "Authorization: Bearer secret\r\n"
                  "Content-Length: 2\r\n\r\n{"),
              HasSubstr("HTTP/1.1 408 "));
  EXPECT_EQ(stops_, 0);
}

// The body is read away: what follows is another request.
TEST_F(DashboardWriteTest, AConnectionServesSeveralRequests) {
  Start();
  httplib::Client client("127.0.0.1", server_->port());
  client.set_keep_alive(true);
  for (int i = 0; i < 3; ++i) {
    const httplib::Result posted =
        client.Post(kStopRun, kBearer, "GET / HTTP/1.1", "application/json");
    ASSERT_TRUE(posted) << i;
    EXPECT_EQ(posted->status, 200);
    EXPECT_EQ(posted->body, "{}");
    const httplib::Result refused =
        client.Post(kStopRun, {}, "{}", "application/json");
    ASSERT_TRUE(refused) << i;
    EXPECT_EQ(refused->status, 401);
    const httplib::Result got = client.Get("/api/v1/nodes", kBearer);
    ASSERT_TRUE(got) << i;
    EXPECT_EQ(got->status, 200);
  }
  EXPECT_EQ(stops_, 3);
}

}  // namespace
}  // namespace miniray
