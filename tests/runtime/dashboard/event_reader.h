// Reads server-sent events of the dashboard as they come.

#ifndef MINIRAY_TESTS_RUNTIME_DASHBOARD_EVENT_READER_H_
#define MINIRAY_TESTS_RUNTIME_DASHBOARD_EVENT_READER_H_

#include <httplib.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace miniray {

// Thread-safe. Its destruction closes the connection.
class EventReader {
 public:
  static constexpr absl::Duration kLong = absl::Seconds(30);

  struct Event {
    std::string name;
    nlohmann::json data;
  };

  EventReader(int port, std::string path, httplib::Headers headers)
      : client_("127.0.0.1", port),
        thread_([this, path = std::move(path), headers = std::move(headers)] {
          client_.set_read_timeout(30);
          const httplib::Result answer = client_.Get(
              path, headers,
              [this](const httplib::Response& response) {
                absl::MutexLock lock(&mu_);
                status_ = response.status;
                return true;
              },
              [this](const char* data, size_t size) {
                absl::MutexLock lock(&mu_);
                text_.append(data, size);
                return !leaving_;
              });
          absl::MutexLock lock(&mu_);
          ended_ = true;
        }) {}

  ~EventReader() {
    {
      absl::MutexLock lock(&mu_);
      leaving_ = true;
    }
    // Before the connection stands there is nothing to close.
    AwaitStatus();
    client_.stop();
    thread_.join();
  }

  // The status of the answer; 0: none came.
  int AwaitStatus() {
    const auto there = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return status_ != 0 || ended_;
    };
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(&there), kLong);
    return status_;
  }

  // Waits until there are `count` whole events with this name; returns those
  // that there are.
  std::vector<Event> Await(absl::string_view name, size_t count) {
    std::vector<Event> found;
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      found = Named(name);
      return found.size() >= count || ended_;
    };
    absl::MutexLock lock(&mu_);
    mu_.AwaitWithTimeout(absl::Condition(&enough), kLong);
    return found;
  }

  // True once the server has ended the answer.
  bool AwaitEnd() {
    absl::MutexLock lock(&mu_);
    return mu_.AwaitWithTimeout(absl::Condition(&ended_), kLong);
  }

  std::string text() {
    absl::MutexLock lock(&mu_);
    return text_;
  }

 private:
  std::vector<Event> Named(absl::string_view name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::vector<Event> events;
    // What stands behind the last empty line is not whole.
    std::vector<absl::string_view> messages = absl::StrSplit(text_, "\n\n");
    messages.pop_back();
    for (const absl::string_view message : messages) {
      Event event;
      for (absl::string_view line : absl::StrSplit(message, '\n')) {
        if (absl::ConsumePrefix(&line, "event: "))
          event.name = std::string(line);
        if (absl::ConsumePrefix(&line, "data: ")) {
          event.data = nlohmann::json::parse(std::string(line));
        }
      }
      if (event.name == name) events.push_back(std::move(event));
    }
    return events;
  }

  absl::Mutex mu_;
  int status_ ABSL_GUARDED_BY(mu_) = 0;
  std::string text_ ABSL_GUARDED_BY(mu_);
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  httplib::Client client_;
  std::thread thread_;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_DASHBOARD_EVENT_READER_H_
