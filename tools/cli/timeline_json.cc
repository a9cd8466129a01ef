#include "tools/cli/timeline_json.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace miniray::cli {
namespace {

using Json = nlohmann::json;

Json Metadata(const char* what, int row, int lane, const std::string& name) {
  return {{"ph", "M"},   {"name", what}, {"pid", row},
          {"tid", lane}, {"ts", 0},      {"args", {{"name", name}}}};
}

// Names come from users: what is not UTF-8 is replaced, not refused.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string TimelineToJson(const v1::GetCallRecordsResponse& records) {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"otherData\":";
  text += Dump({{"dropped_calls", records.dropped()}});
  text += ",\"traceEvents\":[";
  // A process of an actor -> its row.
  std::map<std::pair<std::string, int64_t>, int> rows;
  std::set<std::pair<int, int>> lanes;
  const char* separator = "\n";
  const auto add = [&](const Json& event) {
    absl::StrAppend(&text, separator, Dump(event));
    separator = ",\n";
  };
  for (const v1::CallRecord& call : records.records()) {
    const auto [it, is_new] =
        rows.try_emplace({call.actor_id(), call.pid()}, rows.size() + 1);
    const int row = it->second;
    if (is_new) {
      add(Metadata(
          "process_name", row, 0,
          absl::StrCat(call.class_name(), " ",
                       call.actor_name().empty()
                           ? call.actor_id()
                           : absl::StrCat("'", call.actor_name(), "'"),
                       " (pid ", call.pid(), ", ", call.node_id(), ")")));
    }
    if (lanes.insert({row, call.lane()}).second) {
      add(Metadata("thread_name", row, call.lane(),
                   absl::StrCat("lane ", call.lane())));
    }
    add({{"ph", "X"},
         {"name", call.method()},
         {"cat", call.failed() ? "failed call" : "call"},
         {"pid", row},
         {"tid", call.lane()},
         {"ts", call.start_unix_us()},
         {"dur",
          std::max<int64_t>(call.end_unix_us() - call.start_unix_us(), 0)},
         {"args",
          {{"actor", call.actor_id()},
           {"job", call.job_id()},
           {"node", call.node_id()},
           {"waited_us",
            std::max<int64_t>(call.start_unix_us() - call.queued_unix_us(), 0)},
           {"failed", call.failed()}}}});
  }
  absl::StrAppend(&text, "\n]}\n");
  return text;
}

}  // namespace miniray::cli
