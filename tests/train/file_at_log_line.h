// Lets processes of a test await what its own process says in its log.

#ifndef MINIRAY_TESTS_TRAIN_FILE_AT_LOG_LINE_H_
#define MINIRAY_TESTS_TRAIN_FILE_AT_LOG_LINE_H_

#include <glog/logging.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace miniray::train {

// Makes an empty file once a line contains a text, while it lives.
class FileAtLogLine : public google::LogSink {
 public:
  FileAtLogLine(std::string text, std::string path)
      : text_(std::move(text)), path_(std::move(path)) {
    google::AddLogSink(this);
  }
  ~FileAtLogLine() override { google::RemoveLogSink(this); }

  void send(google::LogSeverity, const char*, const char*, int,
            const google::LogMessageTime&, const char* message,
            size_t size) override {
    if (absl::StrContains(absl::string_view(message, size), text_)) {
      std::ofstream(path_).flush();
    }
  }

 private:
  const std::string text_;
  const std::string path_;
};

// Waits until there is such a file, at most a minute; returns whether there is.
inline bool AwaitFile(const std::string& path) {
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (!std::filesystem::exists(path)) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace miniray::train

#endif  // MINIRAY_TESTS_TRAIN_FILE_AT_LOG_LINE_H_
