#include "tools/cli/ready.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace miniray::cli {
namespace {

using Json = nlohmann::json;

std::string WhereItLogs(const ReadyMessage& message) {
  return message.log.empty() ? "" : absl::StrCat(", log ", message.log);
}

}  // namespace

std::string ToLine(const ReadyMessage& message) {
  Json json;
  if (!message.error.empty()) {
    json["error"] = message.error;
  } else {
    json = {{"address", message.address},        {"pid", message.pid},
            {"node_id", message.node_id},        {"join", message.join},
            {"dashboard", message.dashboard},    {"resumed", message.resumed},
            {"warning", message.warning},        {"log", message.log},
            {"session_dir", message.session_dir}};
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<ReadyMessage> FromLine(const std::string& line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  ReadyMessage message;
  try {
    message.error = json.value("error", "");
    message.address = json.value("address", "");
    message.pid = json.value("pid", 0);
    message.node_id = json.value("node_id", "");
    message.join = json.value("join", "");
    message.dashboard = json.value("dashboard", "");
    message.resumed = json.value("resumed", "");
    message.warning = json.value("warning", "");
    message.session_dir = json.value("session_dir", "");
    message.log = json.value("log", "");
  } catch (const Json::exception&) {
    return absl::InternalError(
        absl::StrCat("not a line that says that a process is ready: ", line));
  }
  return message;
}

absl::Status ReadyPipe::Send(const ReadyMessage& message) {
  if (!fd_.valid()) return absl::OkStatus();
  const ScopedFd fd = std::move(fd_);
  const std::string line = ToLine(message);
  absl::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t n = write(fd.get(), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write to --ready_fd");
    rest.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

std::string DescribeHead(const ReadyMessage& message) {
  std::string text =
      absl::StrCat("The head listens at ", message.address, " (pid ",
                   message.pid, WhereItLogs(message), ").\n");
  if (!message.resumed.empty()) {
    absl::StrAppend(&text, "It goes on with the cluster of an earlier head: ",
                    message.resumed, ".\n");
  }
  if (!message.dashboard.empty()) {
    absl::StrAppend(&text, "Dashboard: ", message.dashboard, "\n");
  }
  absl::StrAppend(&text, "To add a node, run there:\n  ", message.join, "\n");
  return text;
}

std::string DescribeDaemon(const ReadyMessage& message) {
  return absl::StrCat(message.node_id, " joined ", message.address, " (pid ",
                      message.pid, WhereItLogs(message), ").\n");
}

}  // namespace miniray::cli
