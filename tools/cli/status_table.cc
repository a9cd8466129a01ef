#include "tools/cli/status_table.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

namespace miniray::cli {
namespace {

using Row = std::vector<std::string>;

// Replaces what would break the table or act on the terminal.
std::string OneLine(absl::string_view text) {
  std::string line(absl::StripAsciiWhitespace(text));
  for (char& c : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  return line;
}

// Characters, as far as UTF-8 tells: its continuation bytes take no place.
size_t Width(absl::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (c & 0xC0) != 0x80; });
}

std::string FormatTable(absl::string_view title, std::vector<Row> rows) {
  std::string text = absl::StrCat(title, ": ", rows.size() - 1, "\n");
  if (rows.size() == 1) return text;
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
      absl::StrAppend(&line, "  ", row[i]);
      line.append(widths[i] - Width(row[i]), ' ');
    }
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

// ACTOR_STATE_ALIVE -> alive
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

double Quantity(const v1::Resources& resources, const std::string& name) {
  const auto found = resources.quantity().find(name);
  return found == resources.quantity().end() ? 0 : found->second;
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

std::string NodesTable(const v1::GetClusterStateResponse& state) {
  std::vector<Row> rows = {{"ID", "HOST", "ADDRESS", "STATE", "CPU", "GPU",
                            "MEMORY", "OTHER", "CAUSE"}};
  for (const v1::NodeInfo& node : state.nodes()) {
    rows.push_back({node.node_id(), node.hostname(), node.address(),
                    StateWord(v1::NodeState_Name(node.state()), "NODE_STATE_"),
                    UsedOfTotal(node, "CPU", &Number),
                    UsedOfTotal(node, "GPU", &Number),
                    UsedOfTotal(node, "memory", &Bytes), OtherResources(node),
                    node.death_cause()});
  }
  return FormatTable("Nodes", std::move(rows));
}

std::string ActorsTable(const v1::GetClusterStateResponse& state) {
  std::vector<Row> rows = {
      {"CLASS", "NAME", "STATE", "NODE", "PID", "RESTARTS", "CAUSE"}};
  for (const v1::ActorInfo& actor : state.actors()) {
    rows.push_back(
        {actor.class_name(),
         actor.actor_namespace().empty()
             ? actor.name()
             : absl::StrCat(actor.actor_namespace(), "/", actor.name()),
         StateWord(v1::ActorState_Name(actor.state()), "ACTOR_STATE_"),
         actor.node_id(), actor.pid() == 0 ? "" : absl::StrCat(actor.pid()),
         absl::StrCat(actor.restarts()), actor.cause()});
  }
  return FormatTable("Actors", std::move(rows));
}

std::string LocalTime(int64_t unix_ms) {
  if (unix_ms == 0) return "";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(unix_ms),
                          absl::LocalTimeZone());
}

std::string JobsTable(const v1::GetClusterStateResponse& state) {
  std::vector<Row> rows = {
      {"ID", "PROGRAM", "STATE", "HOST", "PID", "START", "END"}};
  for (const v1::JobInfo& job : state.jobs()) {
    rows.push_back(
        {job.job_id(), job.program(),
         StateWord(v1::JobState_Name(job.state()), "JOB_STATE_"),
         job.hostname(), job.pid() == 0 ? "" : absl::StrCat(job.pid()),
         LocalTime(job.start_unix_ms()), LocalTime(job.end_unix_ms())});
  }
  return FormatTable("Jobs", std::move(rows));
}

}  // namespace

std::string FormatClusterState(const v1::GetClusterStateResponse& state,
                               const std::string& address) {
  std::string text = absl::StrCat("Head: ", address);
  if (!state.head_version().empty()) {
    absl::StrAppend(&text, " (Mini-Ray ", OneLine(state.head_version()), ")");
  }
  absl::StrAppend(&text, "\n\n", NodesTable(state), "\n", ActorsTable(state),
                  "\n", JobsTable(state));
  return text;
}

}  // namespace miniray::cli
