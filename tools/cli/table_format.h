// Tables of text for people.

#ifndef MINIRAY_TOOLS_CLI_TABLE_FORMAT_H_
#define MINIRAY_TOOLS_CLI_TABLE_FORMAT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/cluster.pb.h"

namespace miniray::cli {

using Row = std::vector<std::string>;

// Aligns the columns; an empty cell becomes "-". The first row is the heading.
// What users chose (names, causes) is kept to one line, without control
// characters.
std::string FormatColumns(std::vector<Row> rows, absl::string_view indent = "");

// "<title>: <rows below the heading>", and the columns unless there are none.
std::string FormatTable(absl::string_view title, std::vector<Row> rows);

// Replaces what would break a line or act on the terminal.
std::string OneLine(absl::string_view text);

// ("ACTOR_STATE_ALIVE", "ACTOR_STATE_") -> "alive"
std::string StateWord(absl::string_view name, absl::string_view prefix);

std::string Number(double quantity);
std::string Bytes(double bytes);         // "1.5GiB"
std::string LocalTime(int64_t unix_ms);  // Empty for 0.
// "34 %" for 0.34; kept to 0 to 100.
std::string Percent(double fraction);
// "0:07", "1:23", "2:03:10".
std::string ClockText(double seconds);

// "1.5/4", or empty where the node has none. `name` is "CPU", "memory", ...
std::string UsedOfTotal(const v1::NodeInfo& node, const std::string& name,
                        std::string (*format)(double));
// The same of all that is neither CPU, GPU nor memory: "slot 2/2, tpu 0/1".
std::string OtherResources(const v1::NodeInfo& node);

// "CPU 2, slot 1".
std::string Describe(const v1::Resources& resources);

// "running". A driver that connected by itself and took its leave has "ended":
// how, only who started it knows.
std::string JobStateWord(const v1::JobInfo& job);

// Empty where no process of the cluster's ended, or nobody saw its code.
std::string ExitCodeText(const v1::JobInfo& job);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_TABLE_FORMAT_H_
