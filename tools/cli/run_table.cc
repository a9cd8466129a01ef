#include "tools/cli/run_table.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "tools/cli/table_format.h"

namespace miniray::cli {
namespace {

bool IsRunning(const v1::RunInfo& run) {
  return run.state() == v1::RUN_STATE_RUNNING;
}

std::string ProgressText(const v1::RunInfo& run) {
  return run.epochs() <= 0 ? "" : Percent(run.progress());
}

std::string RateText(const v1::RunInfo& run) {
  return run.samples_per_second() > 0
             ? absl::StrFormat("%.0f", run.samples_per_second())
             : "";
}

std::string EtaText(const v1::RunInfo& run) {
  return IsRunning(run) && run.eta_seconds() >= 0 ? ClockText(run.eta_seconds())
                                                  : "";
}

// Sorted: a map of protobuf's has no order.
std::map<std::string, double> MetricsOf(const v1::RunInfo& run) {
  return {run.metrics().begin(), run.metrics().end()};
}

std::string NameAndValue(const std::pair<const std::string, double>& metric) {
  return absl::StrFormat("%s %.4g", metric.first, metric.second);
}

std::string WorkerText(const v1::RunProgress& worker) {
  std::string text = absl::StrCat("epoch ", worker.epoch() + 1);
  if (worker.steps() > 0) {
    absl::StrAppend(&text, ", step ", worker.step(), " of ", worker.steps());
  } else if (worker.step() > 0) {
    absl::StrAppend(&text, ", step ", worker.step());
  }
  if (worker.samples() > 0) {
    absl::StrAppend(&text, ", ", worker.samples(), " samples");
  }
  return text;
}

std::string ServerText(const v1::RunServer& server) {
  return absl::StrCat(
      server.strategy(), ", version ", server.version(), ", ",
      server.num_syncs(), " syncs, ",
      Bytes(static_cast<double>(server.bytes_pulled())), " pulled, ",
      Bytes(static_cast<double>(server.bytes_pushed())), " pushed");
}

}  // namespace

void SortByAge(RunInfos* runs) {
  std::sort(runs->begin(), runs->end(),
            [](const v1::RunInfo& a, const v1::RunInfo& b) {
              return std::pair<int64_t, const std::string&>(a.start_unix_ms(),
                                                            a.run_id()) <
                     std::pair<int64_t, const std::string&>(b.start_unix_ms(),
                                                            b.run_id());
            });
}

std::string RunStateWord(const v1::RunInfo& run) {
  if (IsRunning(run) && run.stop_requested()) return "stopping";
  return StateWord(v1::RunState_Name(run.state()), "RUN_STATE_");
}

std::string EpochText(const v1::RunInfo& run) {
  const int64_t epoch = IsRunning(run) ? run.epoch() + 1 : run.epoch();
  // The last one is over, and no next one begins.
  if (run.epochs() <= 0) return absl::StrCat(epoch);
  return absl::StrCat(std::min(epoch, run.epochs()), "/", run.epochs());
}

std::string LossText(const v1::RunInfo& run) {
  const std::map<std::string, double> metrics = MetricsOf(run);
  if (const auto loss = metrics.find("loss"); loss != metrics.end()) {
    return absl::StrFormat("%.4g", loss->second);
  }
  std::vector<std::string> losses;
  for (const auto& metric : metrics) {
    if (absl::StrContains(metric.first, "loss")) {
      losses.push_back(NameAndValue(metric));
    }
  }
  return absl::StrJoin(losses, ", ");
}

std::string FormatRuns(const RunInfos& runs) {
  std::vector<Row> rows = {{"ID", "KIND", "STATE", "EPOCH", "PROGRESS",
                            "SAMPLES/S", "ETA", "LOSS", "WORKERS", "START",
                            "END", "ERROR"}};
  for (const v1::RunInfo& run : runs) {
    rows.push_back({run.run_id(), run.kind(), RunStateWord(run), EpochText(run),
                    ProgressText(run), RateText(run), EtaText(run),
                    LossText(run), absl::StrCat(run.num_workers()),
                    LocalTime(run.start_unix_ms()),
                    LocalTime(run.end_unix_ms()), run.error()});
  }
  return FormatColumns(std::move(rows));
}

std::string FormatRun(const v1::GetRunResponse& response) {
  const v1::RunInfo& run = response.run();
  std::string text;
  const auto add = [&text](absl::string_view name, const std::string& value) {
    if (value.empty()) return;
    const std::string label = absl::StrCat(name, ":");
    absl::StrAppend(&text, label,
                    std::string(label.size() < 12 ? 12 - label.size() : 1, ' '),
                    OneLine(value), "\n");
  };
  add("Run", run.run_id());
  add("State", RunStateWord(run));
  add("Error", run.error());
  add("Kind", run.kind());
  add("Job", run.job_id());
  add("Epoch", EpochText(run));
  add("Progress", ProgressText(run));
  add("Samples/s", RateText(run));
  add("ETA", EtaText(run));
  add("Workers", absl::StrCat(run.num_workers()));
  for (const v1::RunProgress& worker : response.workers()) {
    if (worker.worker() < 0) continue;
    add(absl::StrCat("  worker ", worker.worker()), WorkerText(worker));
  }
  for (const v1::RunServer& server : response.servers()) {
    add(absl::StrCat("  server ", OneLine(server.name())), ServerText(server));
  }
  const std::map<std::string, double> metrics = MetricsOf(run);
  std::vector<std::string> values;
  for (const auto& metric : metrics) values.push_back(NameAndValue(metric));
  add("Metrics", absl::StrJoin(values, ", "));
  add("Syncs", absl::StrCat(run.num_syncs()));
  add("Pictures", absl::StrCat(run.num_images()));
  add("Started", LocalTime(run.start_unix_ms()));
  if (run.num_starts() > 1) add("Starts", absl::StrCat(run.num_starts()));
  add("Ended", LocalTime(run.end_unix_ms()));
  add("Host", run.hostname());
  add("Folder", run.folder());
  if (run.dropped_events() > 0) {
    add("Not heard", absl::StrCat(run.dropped_events(),
                                  " reports that the head was not there for"));
  }
  return text;
}

}  // namespace miniray::cli
