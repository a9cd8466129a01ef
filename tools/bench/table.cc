#include "tools/bench/table.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status_macros.h"

namespace miniray::bench {
namespace {

// Three digits that count, and no exponent.
std::string Number(std::optional<double> value) {
  if (!value.has_value()) return "-";
  const double size = std::fabs(*value);
  if (size >= 100) return absl::StrFormat("%.0f", *value);
  if (size >= 10) return absl::StrFormat("%.1f", *value);
  if (size >= 1) return absl::StrFormat("%.2f", *value);
  return absl::StrFormat("%.3f", *value);
}

std::string Target(const Row& row) {
  if (row.at_most.has_value()) return absl::StrFormat("<= %g", *row.at_most);
  if (row.at_least.has_value()) return absl::StrFormat(">= %g", *row.at_least);
  return "";
}

std::string Verdict(const Row& row) {
  const std::optional<bool> held = row.Held();
  if (!held.has_value()) return "";
  return *held ? "holds" : "MISSED";
}

nlohmann::json Optional(std::optional<double> value) {
  return value.has_value() ? nlohmann::json(*value) : nlohmann::json();
}

}  // namespace

std::optional<double> Row::Ratio() const {
  if (!ours.has_value() || !peer.has_value() || *peer == 0) return std::nullopt;
  return *ours / *peer;
}

std::optional<bool> Row::Held() const {
  if (!at_most.has_value() && !at_least.has_value()) return std::nullopt;
  const std::optional<double> value = peer_name.empty() ? ours : Ratio();
  return value.has_value() && *value <= at_most.value_or(*value) &&
         *value >= at_least.value_or(*value);
}

void Table::SetRounds(int rounds, int idle_rounds) {
  idle_rounds_ =
      rounds_ == 0 ? idle_rounds : std::min(idle_rounds_, idle_rounds);
  rounds_ = rounds;
}

std::string Table::Text() const {
  std::vector<std::vector<std::string>> lines = {
      {"what", "ours", "unit", "peer", "", "ratio", "target", ""}};
  for (const Row& row : rows_) {
    lines.push_back({row.what, Number(row.ours), row.unit, row.peer_name,
                     row.peer_name.empty() ? "" : Number(row.peer),
                     row.peer_name.empty() ? "" : Number(row.Ratio()),
                     Target(row), Verdict(row)});
    if (!row.note.empty()) lines.back().back() += " (" + row.note + ")";
  }
  std::vector<size_t> width(lines[0].size(), 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      width[i] = std::max(width[i], line[i].size());
    }
  }
  std::string text = absl::StrCat(
      name_, ", medians of ", rounds_, " rounds in turn; ", idle_rounds_,
      " of them began while the rest of the machine was idle\n");
  for (const auto& line : lines) {
    std::string out = " ";
    for (size_t i = 0; i < line.size(); ++i) {
      const bool number = i == 1 || i == 4 || i == 5;
      const std::string padding(width[i] - line[i].size(), ' ');
      absl::StrAppend(&out, " ", number ? padding : "", line[i],
                      number ? "" : padding, " ");
    }
    out.erase(out.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, out, "\n");
  }
  return text;
}

std::string Table::Json() const {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : rows_) {
    const std::optional<bool> held = row.Held();
    rows.push_back(
        {{"what", row.what},
         {"unit", row.unit},
         {"ours", Optional(row.ours)},
         {"peer_name", row.peer_name},
         {"peer", Optional(row.peer)},
         {"ratio", Optional(row.Ratio())},
         {"at_most", Optional(row.at_most)},
         {"at_least", Optional(row.at_least)},
         {"held", held.has_value() ? nlohmann::json(*held) : nlohmann::json()},
         {"note", row.note}});
  }
  return nlohmann::json{{"bench", name_},
                        {"rounds", rounds_},
                        {"idle_rounds", idle_rounds_},
                        {"rows", rows}}
      .dump(2);
}

bool Table::Held() const {
  return std::all_of(rows_.begin(), rows_.end(),
                     [](const Row& row) { return row.Held().value_or(true); });
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle]
                                : (values[middle - 1] + values[middle]) / 2;
}

double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto index =
      static_cast<size_t>(static_cast<double>(values.size()) * share);
  return values[std::min(index, values.size() - 1)];
}

absl::StatusOr<std::vector<double>> MediansInTurn(
    int rounds, const std::vector<Measurement>& measurements,
    const std::function<void()>& before_turn) {
  std::vector<std::vector<double>> values(measurements.size());
  for (int round = -1; round < rounds; ++round) {
    if (round >= 0) before_turn();
    for (size_t i = 0; i < measurements.size(); ++i) {
      absl::StatusOr<double> value = measurements[i].run();
      if (!value.ok()) return Annotate(value.status(), measurements[i].name);
      if (round >= 0) values[i].push_back(*value);
    }
  }
  std::vector<double> medians;
  for (auto& of_one : values) medians.push_back(Median(std::move(of_one)));
  return medians;
}

}  // namespace miniray::bench
