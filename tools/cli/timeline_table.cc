#include "tools/cli/timeline_table.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "tools/cli/table_format.h"

namespace miniray::cli {
namespace {

// In microseconds. Doubles: times may come from anywhere, and sums are not to
// overflow.
struct Sums {
  int64_t count = 0;
  int64_t failed = 0;
  double total = 0;
  double longest = 0;
  double waited = 0;

  void Add(double length) {
    ++count;
    total += length;
    longest = std::max(longest, length);
  }
};

double Between(int64_t start_us, int64_t end_us) {
  return std::max(static_cast<double>(end_us) - static_cast<double>(start_us),
                  0.0);
}

std::string TimeText(double us) {
  if (us < 1e3) return absl::StrFormat("%.0fus", us);
  if (us < 1e6) return absl::StrFormat("%.1fms", us / 1e3);
  if (us < 1e8) return absl::StrFormat("%.2fs", us / 1e6);
  return ClockText(us / 1e6);
}

// "epoch" of "epoch 3".
std::string KindOf(absl::string_view name) {
  while (!name.empty() && (absl::ascii_isdigit(name.back()) ||
                           absl::ascii_isspace(name.back()))) {
    name.remove_suffix(1);
  }
  return std::string(name);
}

}  // namespace

std::string FormatTimelineTable(const v1::GetCallRecordsResponse& calls,
                                const std::vector<v1::GetRunResponse>& runs) {
  std::map<std::string, Sums> sums;
  for (const v1::CallRecord& call : calls.records()) {
    Sums& sum = sums[absl::StrCat(call.class_name(), ".", call.method())];
    sum.Add(Between(call.start_unix_us(), call.end_unix_us()));
    sum.waited += Between(call.queued_unix_us(), call.start_unix_us());
    if (call.failed()) ++sum.failed;
  }
  for (const v1::GetRunResponse& run : runs) {
    for (const v1::RunSpan& span : run.spans()) {
      sums[absl::StrCat("run ", run.run().run_id(), ": ", KindOf(span.name()))]
          .Add(Between(span.start_unix_us(), span.end_unix_us()));
    }
  }
  std::vector<std::pair<std::string, Sums>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) {
                     return a.second.total > b.second.total;
                   });
  std::vector<Row> rows = {
      {"WHAT", "COUNT", "FAILED", "TOTAL", "MEAN", "LONGEST", "MEAN WAIT"}};
  for (const auto& [what, sum] : sorted) {
    const auto count = static_cast<double>(sum.count);
    rows.push_back({what, absl::StrCat(sum.count), absl::StrCat(sum.failed),
                    TimeText(sum.total), TimeText(sum.total / count),
                    TimeText(sum.longest), TimeText(sum.waited / count)});
  }
  std::string text = FormatColumns(std::move(rows));
  if (calls.dropped() > 0) {
    absl::StrAppend(&text, "and ", calls.dropped(),
                    " calls that were not kept\n");
  }
  return text;
}

}  // namespace miniray::cli
