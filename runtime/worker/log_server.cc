#include "runtime/worker/log_server.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"

namespace miniray {
namespace {

constexpr int64_t kChunkBytes = 64 << 10;
// How long what a process printed may take to a reader who follows.
constexpr absl::Duration kPollPeriod = absl::Milliseconds(50);
// How long the first words of an actor's next process may.
constexpr absl::Duration kLookPeriod = absl::Milliseconds(500);

}  // namespace

LogServer::LogServer(Callbacks callbacks) : callbacks_(std::move(callbacks)) {
  thread_ = std::thread([this] { Loop(); });
}

LogServer::~LogServer() {
  {
    absl::MutexLock lock(&mu_);
    ending_ = true;
  }
  thread_.join();
}

void LogServer::Read(const v1::ReadNodeLog& request) {
  absl::MutexLock lock(&mu_);
  requests_.push_back(request);
  windows_[request.request_id()] = request.window_bytes();
  news_ = true;
}

void LogServer::Grant(const v1::GrantNodeLog& grant) {
  absl::MutexLock lock(&mu_);
  const auto it = windows_.find(grant.request_id());
  if (it == windows_.end()) return;
  it->second += grant.bytes();
  news_ = true;
}

void LogServer::End(uint64_t request_id) {
  absl::MutexLock lock(&mu_);
  windows_.erase(request_id);
}

void LogServer::EndAll() {
  absl::MutexLock lock(&mu_);
  ++streams_;
  requests_.clear();
  windows_.clear();
}

void LogServer::Loop() {
  std::map<uint64_t, Reading> readings;
  while (true) {
    std::map<uint64_t, int64_t> windows;
    {
      absl::MutexLock lock(&mu_);
      auto work = [this] {
        mu_.AssertHeld();
        return ending_ || news_;
      };
      mu_.AwaitWithTimeout(
          absl::Condition(&work),
          readings.empty() ? absl::InfiniteDuration() : kPollPeriod);
      if (ending_) return;
      news_ = false;
      for (v1::ReadNodeLog& request : std::exchange(requests_, {})) {
        Reading& reading = readings[request.request_id()];
        reading = Reading();
        reading.stream = streams_;
        reading.skip = std::max<int64_t>(request.skip_bytes(), 0);
        reading.request = std::move(request);
      }
      // Those that ended meanwhile.
      std::erase_if(readings, [this](const auto& item) {
        mu_.AssertHeld();
        return HasLeft(item.second);
      });
      windows = windows_;
    }
    for (auto it = readings.begin(); it != readings.end();) {
      const int64_t before = windows[it->first];
      int64_t window = before;
      const bool goes_on = Serve(&it->second, &window);
      absl::MutexLock lock(&mu_);
      if (HasLeft(it->second)) {
        it = readings.erase(it);
        continue;
      }
      windows_[it->first] -= before - window;
      if (goes_on) {
        // There is more, for a reader that has granted more.
        if (!it->second.idle && window > 0) news_ = true;
        ++it;
        continue;
      }
      windows_.erase(it->first);
      it = readings.erase(it);
    }
  }
}

bool LogServer::Serve(Reading* reading, int64_t* window) {
  const v1::ReadNodeLog& request = reading->request;
  if (!reading->found) {
    absl::StatusOr<Log> log = callbacks_.find(request);
    if (!log.ok()) return Finish(*reading, log.status());
    reading->log = *std::move(log);
    reading->found = true;
    reading->next = std::max(request.min_incarnation(), 0);
    // The last lines are those of the last process.
    if (request.tail_lines() > 0 && !reading->log.paths.empty()) {
      reading->next =
          std::max(reading->next, reading->log.paths.rbegin()->first);
    }
  }
  reading->idle = false;
  // One chunk a turn: the next reader's turn comes soon.
  while (*window > 0) {
    // Asked before looking: what a process printed last, and the log of one
    // that was started, are there by the time that nothing lives any more.
    const bool waits = request.follow() && reading->log.lives();
    if (!reading->reader.has_value()) {
      const absl::StatusOr<bool> opened = OpenNext(reading);
      if (waits &&
          (absl::IsNotFound(opened.status()) || (opened.ok() && !*opened))) {
        reading->idle = true;  // Not yet.
        return true;
      }
      if (!opened.ok() || !*opened) return Finish(*reading, opened.status());
    }
    if (reading->unsent.empty()) {
      const bool complete =
          !waits || reading->log.paths.rbegin()->first >= reading->next;
      absl::StatusOr<std::string> bytes = reading->reader->Read(
          static_cast<size_t>(std::min(*window, kChunkBytes)));
      if (!bytes.ok()) return Finish(*reading, bytes.status());
      // What was skipped over includes what the reader knows to be lost.
      const int64_t gone = reading->reader->TakeLost();
      const int64_t known = std::min(reading->skip, gone);
      reading->skip -= known;
      reading->lost += gone - known;
      if (bytes->empty()) {
        if (!TellLost(reading, complete)) {
          reading->idle = true;  // Again in a moment.
          return true;
        }
        if (complete) {
          reading->reader.reset();
          continue;
        }
        // What lives may be the process after this one.
        if (reading->next_look <= absl::Now()) {
          LookAgain(reading);
          if (reading->log.paths.rbegin()->first >= reading->next) continue;
        }
        reading->idle = true;
        return true;
      }
      const auto skipped =
          std::min(reading->skip, static_cast<int64_t>(bytes->size()));
      reading->skip -= skipped;
      reading->unsent = bytes->substr(static_cast<size_t>(skipped));
      if (reading->unsent.empty()) continue;
    }
    v1::LogChunk chunk;
    chunk.set_request_id(request.request_id());
    chunk.set_data(reading->unsent);
    chunk.set_incarnation(reading->next - 1);
    chunk.set_lost_bytes(reading->lost);
    if (!Send(*reading, std::move(chunk))) {
      reading->idle = true;  // Again in a moment.
      return true;
    }
    const auto size = static_cast<int64_t>(reading->unsent.size());
    reading->unsent.clear();
    reading->lost = 0;
    *window -= size;
    return true;
  }
  return true;
}

absl::StatusOr<bool> LogServer::OpenNext(Reading* reading) {
  auto log = reading->log.paths.lower_bound(reading->next);
  if (log == reading->log.paths.end()) {
    LookAgain(reading);
    log = reading->log.paths.lower_bound(reading->next);
  }
  if (log == reading->log.paths.end()) return false;
  absl::StatusOr<LogReader> reader =
      LogReader::Open(log->second, reading->request.tail_lines());
  if (absl::IsNotFound(reader.status()) &&
      std::next(log) != reading->log.paths.end()) {
    reading->next = log->first + 1;  // The janitor was there.
    return OpenNext(reading);
  }
  MR_RETURN_IF_ERROR(reader.status());
  reading->reader = *std::move(reader);
  // What was read already is not of this log where the one that was asked for
  // is not here.
  if (reading->path.empty() &&
      log->first > std::max(reading->request.min_incarnation(), 0)) {
    reading->skip = 0;
  }
  reading->path = log->second;
  reading->told_lost_bytes = 0;
  if (reading->request.tail_lines() > 0) {
    // So that the reader knows where it is.
    reading->lost = reading->reader->Position();
    reading->request.clear_tail_lines();  // Of a further one: all.
  }
  reading->next = log->first + 1;
  return true;
}

bool LogServer::TellLost(Reading* reading, bool complete) {
  const LostOutput lost = LostOutputOf(reading->path);
  // While more is written: that it began, and the sum at the end.
  if (lost.unsaid_bytes <= reading->told_lost_bytes ||
      (!complete && reading->told_lost_bytes > 0)) {
    return true;
  }
  v1::LogChunk chunk;
  chunk.set_request_id(reading->request.request_id());
  chunk.set_incarnation(reading->next - 1);
  chunk.set_error(ToUtf8(lost.ToString()));
  if (!Send(*reading, std::move(chunk))) return false;
  reading->told_lost_bytes = lost.unsaid_bytes;
  return true;
}

void LogServer::LookAgain(Reading* reading) {
  reading->next_look = absl::Now() + kLookPeriod;
  absl::StatusOr<Log> log = callbacks_.find(reading->request);
  // Those that are gone were read.
  if (log.ok()) reading->log.paths.merge(log->paths);
}

bool LogServer::Finish(const Reading& reading, const absl::Status& status) {
  v1::LogChunk chunk;
  chunk.set_request_id(reading.request.request_id());
  chunk.set_last(true);
  chunk.set_incarnation(reading.next - 1);
  if (!status.ok()) chunk.set_error(ToUtf8(status.message()));
  (void)Send(reading, std::move(chunk));
  return false;
}

bool LogServer::Send(const Reading& reading, v1::LogChunk chunk) {
  absl::MutexLock lock(&mu_);
  return HasLeft(reading) || callbacks_.send(std::move(chunk));
}

bool LogServer::HasLeft(const Reading& reading) const {
  return reading.stream != streams_ ||
         !windows_.contains(reading.request.request_id());
}

}  // namespace miniray
