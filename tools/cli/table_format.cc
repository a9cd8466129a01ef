#include "tools/cli/table_format.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

namespace miniray::cli {
namespace {

// Characters, as far as UTF-8 tells: its continuation bytes take no place.
size_t Width(absl::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (c & 0xC0) != 0x80; });
}

// Whether it begins with one of U+0080 to U+009F, in UTF-8: to some terminals
// U+009B is what ESC and '[' are.
bool IsC1Control(absl::string_view text) {
  return text.size() >= 2 && text[0] == '\xC2' &&
         static_cast<unsigned char>(text[1]) >= 0x80 &&
         static_cast<unsigned char>(text[1]) <= 0x9F;
}

double Quantity(const v1::Resources& resources, const std::string& name) {
  const auto found = resources.quantity().find(name);
  return found == resources.quantity().end() ? 0 : found->second;
}

}  // namespace

std::string OneLine(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsC1Control(text.substr(i))) {
      line.push_back(' ');
      ++i;
    } else {
      const bool control =
          absl::ascii_iscntrl(static_cast<unsigned char>(text[i]));
      line.push_back(control ? ' ' : text[i]);
    }
  }
  return line;
}

std::string FormatColumns(std::vector<Row> rows, absl::string_view indent) {
  std::string text;
  if (rows.empty()) return text;
  std::vector<size_t> widths(rows[0].size());
  for (Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = OneLine(row[i]);
      if (row[i].empty()) row[i].push_back('-');
      widths[i] = std::max(widths[i], Width(row[i]));
    }
  }
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, i == 0 ? indent : "  ", row[i]);
      line.append(widths[i] - Width(row[i]), ' ');
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

std::string FormatTable(absl::string_view title, std::vector<Row> rows) {
  std::string text = absl::StrCat(title, ": ", rows.size() - 1, "\n");
  if (rows.size() == 1) return text;
  return text + FormatColumns(std::move(rows), "  ");
}

std::string StateWord(absl::string_view name, absl::string_view prefix) {
  absl::ConsumePrefix(&name, prefix);
  return absl::AsciiStrToLower(name);
}

std::string Number(double quantity) {
  return absl::StrFormat("%.15g", quantity);
}

std::string Bytes(double bytes) {
  return absl::StrFormat("%.1fGiB", bytes / (1 << 30));
}

std::string LocalTime(int64_t unix_ms) {
  if (unix_ms == 0) return "";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(unix_ms),
                          absl::LocalTimeZone());
}

std::string Percent(double fraction) {
  // NaN fails the comparison.
  const double done = fraction > 0 ? std::min(fraction, 1.0) : 0.0;
  return absl::StrFormat("%d %%", static_cast<int>(done * 100));
}

std::string ClockText(double seconds) {
  constexpr double kMost = 1e9;  // Thirty years.
  const int64_t whole =
      static_cast<int64_t>(seconds > 0 ? std::min(seconds, kMost) : 0.0);
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  if (hours == 0) return absl::StrFormat("%d:%02d", minutes, whole % 60);
  return absl::StrFormat("%d:%02d:%02d", hours, minutes, whole % 60);
}

std::string UsedOfTotal(const v1::NodeInfo& node, const std::string& name,
                        std::string (*format)(double)) {
  const double total = Quantity(node.total(), name);
  if (total == 0) return "";
  return absl::StrCat(format(total - Quantity(node.available(), name)), "/",
                      format(total));
}

std::string OtherResources(const v1::NodeInfo& node) {
  std::map<std::string, std::string> others;
  for (const auto& [name, total] : node.total().quantity()) {
    if (name == "CPU" || name == "GPU" || name == "memory") continue;
    others[name] = UsedOfTotal(node, name, &Number);
  }
  return absl::StrJoin(others, ", ", absl::PairFormatter(" "));
}

std::string Describe(const v1::Resources& resources) {
  std::map<std::string, std::string> sorted;
  for (const auto& [name, quantity] : resources.quantity()) {
    sorted[name] = name == "memory" ? Bytes(quantity) : Number(quantity);
  }
  return absl::StrJoin(sorted, ", ", absl::PairFormatter(" "));
}

std::string JobStateWord(const v1::JobInfo& job) {
  if (!job.submitted() && job.state() == v1::JOB_STATE_SUCCEEDED) {
    return "ended";
  }
  return StateWord(v1::JobState_Name(job.state()), "JOB_STATE_");
}

std::string ExitCodeText(const v1::JobInfo& job) {
  if (!job.submitted() || job.end_unix_ms() == 0) return "";
  // A 0 may also mean that there is none: of a job that never ran, or whose
  // node was lost. A failed one did not exit with it.
  if (job.exit_code() == 0 &&
      (job.start_unix_ms() == 0 || job.state() == v1::JOB_STATE_FAILED)) {
    return "";
  }
  return absl::StrCat(job.exit_code());
}

}  // namespace miniray::cli
