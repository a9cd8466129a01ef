// The part of Api that sends as things happen: news, and logs.

#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/dashboard/answers.h"
#include "runtime/dashboard/api.h"
#include "runtime/dashboard/log_text.h"
#include "runtime/http/http_server.h"

namespace miniray {
namespace {

using nlohmann::json;

// Exactly this: cpp-httplib would compress another one, and so hold it back.
constexpr char kEventType[] = "text/event-stream";
// What a client waits before it comes again.
constexpr char kRetry[] = "retry: 1000\n\n";
// A comment, by which both ends notice that the other has vanished.
constexpr char kHeartbeat[] = ": still here\n\n";
constexpr absl::Duration kHeartbeatPeriod = absl::Seconds(10);
// So often is a client that has left noticed.
constexpr absl::Duration kWait = absl::Milliseconds(500);

constexpr int64_t kUsualLines = 1000;
constexpr int64_t kMaxLines = 1'000'000;
constexpr size_t kMaxFilter = 256;
// Of a log that is not followed.
constexpr absl::Duration kMaxReading = absl::Seconds(30);
constexpr size_t kMaxLogBytes = 8 << 20;

std::string Event(absl::string_view name, const json& data) {
  return absl::StrCat("event: ", name, "\ndata: ", data.dump(), "\n\n");
}

// What all streams have in common.
class EventStream {
 public:
  explicit EventStream(std::shared_ptr<void> slot) : slot_(std::move(slot)) {}

  // False: nobody reads it any more.
  bool Write(absl::string_view text, httplib::DataSink& sink) {
    HttpServer::RenewAnswer();
    last_write_ = absl::Now();
    return sink.write(text.data(), text.size());
  }
  // When nothing else was to be sent. False: as Write.
  bool Idle(httplib::DataSink& sink) {
    if (HttpServer::ClientHasLeft()) return false;
    if (absl::Now() - last_write_ < kHeartbeatPeriod) return true;
    return Write(kHeartbeat, sink);
  }
  // Once. False: as Write.
  bool Begin(httplib::DataSink& sink) {
    if (std::exchange(begun_, true)) return true;
    return Write(kRetry, sink);
  }

 private:
  const std::shared_ptr<void> slot_;
  absl::Time last_write_ = absl::InfinitePast();
  bool begun_ = false;
};

// One who watches all.
class NewsStream : public EventStream {
 public:
  NewsStream(std::shared_ptr<void> slot, ChangeFeed* feed)
      : EventStream(std::move(slot)), feed_(*feed), watch_(feed) {}

  // The next part. False: it ends.
  bool Go(httplib::DataSink& sink) {
    if (!Begin(sink)) return false;
    const ChangeFeed::Versions now = watch_.Await(sent_, kWait);
    if (feed_.stopped()) return false;
    std::string text;
    if (now.state != sent_.state) {
      text += Event("state", {{"version", now.state}});
    }
    if (now.runs != sent_.runs) {
      text += Event("runs", {{"version", now.runs}});
    }
    sent_ = now;
    return text.empty() ? Idle(sink) : Write(text, sink);
  }

 private:
  ChangeFeed& feed_;
  ChangeFeed::Watch watch_;
  ChangeFeed::Versions sent_ = {-1, -1};  // So that all hear how it is now.
};

// One who follows a log.
class LogFollower : public EventStream {
 public:
  LogFollower(std::shared_ptr<void> slot, const ChangeFeed* feed,
              DashboardServer::LogSource source, const v1::ReadLogRequest& from,
              absl::string_view filter)
      : EventStream(std::move(slot)),
        feed_(*feed),
        source_(std::move(source)),
        text_(filter),
        only_tail_(from.tail_lines() > 0),
        incarnation_(from.min_incarnation()),
        position_(from.skip_bytes()) {}

  // The next part. False: it ends.
  bool Go(httplib::DataSink& sink) {
    if (!Begin(sink)) return false;
    const absl::StatusOr<std::optional<v1::LogChunk>> chunk = source_(kWait);
    if (feed_.stopped()) return false;
    if (!chunk.ok()) {
      std::string rest = Flush();
      rest +=
          absl::IsOutOfRange(chunk.status())
              ? Event("end", json::object())
              : Event("error", {{"error", ToUtf8(chunk.status().message())}});
      if (Write(rest, sink)) sink.done();
      return true;
    }
    if (!chunk->has_value()) return Idle(sink);
    const std::string text = Take(**chunk);
    return text.empty() ? Idle(sink) : Write(text, sink);
  }

 private:
  std::string Take(const v1::LogChunk& chunk) {
    std::string events;
    if (chunk.incarnation() != incarnation_) {
      events += Flush();
      incarnation_ = chunk.incarnation();
      position_ = 0;
    }
    if (chunk.lost_bytes() > 0) {
      events += Flush();
      position_ += chunk.lost_bytes();
      if (!only_tail_) {
        events += Event(
            "notice",
            {{"text", absl::StrCat(chunk.lost_bytes(),
                                   " bytes of the output are missing here: the "
                                   "log's oldest files made way before they "
                                   "were read")}});
      }
    }
    if (!chunk.data().empty()) only_tail_ = false;
    if (!chunk.error().empty()) {
      events += Event("notice", {{"text", ToUtf8(chunk.error())}});
    }
    position_ += static_cast<int64_t>(chunk.data().size());
    return events + Text(text_.Add(chunk.data()));
  }

  std::string Flush() { return Text(text_.Flush()); }

  std::string Text(const std::string& text) const {
    if (text.empty()) return "";
    return Event(
        "log", {{"text", text},
                {"incarnation", incarnation_},
                {"position", position_ - static_cast<int64_t>(text_.held())}});
  }

  const ChangeFeed& feed_;
  const DashboardServer::LogSource source_;
  LogText text_;
  bool only_tail_;  // What stands before the first bytes is not wanted.
  int32_t incarnation_;
  int64_t position_;  // Bytes of this process's log, with what is held.
};

// stream: what Go is called of, for each part.
template <class Stream>
void AnswerWith(std::shared_ptr<Stream> stream, httplib::Response& response) {
  response.status = 200;
  HttpServer::HangUp();  // There is no request behind it.
  response.set_chunked_content_provider(
      kEventType,
      [stream = std::move(stream)](size_t, httplib::DataSink& sink) {
        return stream->Go(sink);
      });
}

struct LogQuery {
  v1::ReadLogRequest request;
  std::string filter;
};

absl::StatusOr<LogQuery> LogQueryOf(const httplib::Request& request) {
  LogQuery query;
  query.request.set_actor_id(request.get_param_value("actor"));
  query.request.set_job_id(request.get_param_value("job"));
  query.request.set_any_id(request.get_param_value("id"));
  const int named = (query.request.actor_id().empty() ? 0 : 1) +
                    (query.request.job_id().empty() ? 0 : 1) +
                    (query.request.any_id().empty() ? 0 : 1);
  if (named != 1) {
    return absl::InvalidArgumentError(
        "say whose log: actor=ID, job=ID, or id=ID for either");
  }
  query.filter = request.get_param_value("filter");
  if (query.filter.size() > kMaxFilter) {
    return absl::InvalidArgumentError(
        absl::StrCat("filter: expected at most ", kMaxFilter, " bytes"));
  }
  MR_ASSIGN_OR_RETURN(const bool follow, BoolParam(request, "follow"));
  MR_ASSIGN_OR_RETURN(
      const int64_t skip,
      IntParam(request, "skip", 0, std::numeric_limits<int64_t>::max(), 0));
  MR_ASSIGN_OR_RETURN(const int64_t incarnation,
                      IntParam(request, "incarnation", 0,
                               std::numeric_limits<int32_t>::max(), 0));
  // Who goes on from a place wants all from there.
  const bool goes_on =
      request.has_param("skip") || request.has_param("incarnation");
  MR_ASSIGN_OR_RETURN(
      const int64_t tail,
      IntParam(request, "tail", 0, kMaxLines, goes_on ? 0 : kUsualLines));
  query.request.set_follow(follow);
  query.request.set_skip_bytes(skip);
  query.request.set_min_incarnation(static_cast<int32_t>(incarnation));
  query.request.set_tail_lines(tail);
  return query;
}

}  // namespace

void Api::AddStreamsTo(Routes* routes) {
  routes->Add("GET", "/api/v1/events", Access::kData,
              [this](const Request&, const Args&, Response& response) {
                Events(response);
              });
  routes->Add("GET", "/api/v1/logs", Access::kData,
              [this](const Request& request, const Args&, Response& response) {
                Logs(request, response);
              });
}

std::shared_ptr<void> Api::TakeSlot(Response& response) {
  std::shared_ptr<void> slot = slots_.Take();
  if (slot == nullptr) {
    response.set_header("Retry-After", "5");
    Refuse(response, 503,
           absl::StrCat(kMaxStreams,
                        " streams of events and logs are open, which is all "
                        "that there can be; close a page of the dashboard"));
  }
  return slot;
}

void Api::Events(Response& response) {
  std::shared_ptr<void> slot = TakeSlot(response);
  if (slot == nullptr) return;
  AnswerWith(std::make_shared<NewsStream>(std::move(slot), &feed_), response);
}

void Api::Logs(const Request& request, Response& response) {
  if (!options_.read_log) {
    return Refuse(response, 404, "this head shows no logs");
  }
  const absl::StatusOr<LogQuery> query = LogQueryOf(request);
  if (!query.ok()) return Refuse(response, query.status());
  std::shared_ptr<void> slot = TakeSlot(response);
  if (slot == nullptr) return;
  absl::StatusOr<DashboardServer::LogSource> source =
      options_.read_log(query->request);
  if (!source.ok()) return Refuse(response, source.status());
  if (query->request.follow()) {
    return AnswerWith(std::make_shared<LogFollower>(
                          std::move(slot), &feed_, *std::move(source),
                          query->request, query->filter),
                      response);
  }
  LogText lines(query->filter);
  std::string text;
  int64_t left_out = 0;
  const absl::Time deadline = absl::Now() + kMaxReading;
  while (true) {
    const absl::StatusOr<std::optional<v1::LogChunk>> chunk = (*source)(kWait);
    if (absl::IsOutOfRange(chunk.status())) break;
    if (!chunk.ok()) return Refuse(response, chunk.status());
    if (feed_.stopped() || HttpServer::ClientHasLeft()) {
      return Refuse(response, 503, "the head ends");
    }
    if (absl::Now() > deadline) {
      return Refuse(response, 504,
                    "the log did not come within 30 s; ask for less of it "
                    "(tail=100)");
    }
    if (!chunk->has_value()) continue;
    text += lines.Add((*chunk)->data());
    if (text.size() > 2 * kMaxLogBytes) {
      left_out += static_cast<int64_t>(text.size() - kMaxLogBytes);
      text.erase(0, text.size() - kMaxLogBytes);
    }
  }
  text += lines.Flush();
  if (text.size() > kMaxLogBytes) {
    left_out += static_cast<int64_t>(text.size() - kMaxLogBytes);
    text.erase(0, text.size() - kMaxLogBytes);
  }
  if (left_out > 0) {
    text = absl::StrCat("[miniray: ", left_out,
                        " bytes before this are left out]\n", ToUtf8(text));
  }
  Answer(response, std::move(text), kTextType);
}

}  // namespace miniray
