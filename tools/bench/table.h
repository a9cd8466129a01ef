// What a benchmark measured: a row for each comparison, printed as a text table
// or as JSON, and held against the targets.

#ifndef MINIRAY_TOOLS_BENCH_TABLE_H_
#define MINIRAY_TOOLS_BENCH_TABLE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace miniray::bench {

struct Row {
  std::string what;
  std::string unit;  // Of `ours` and `peer`.
  std::optional<double> ours;
  std::string peer_name;
  std::optional<double> peer;  // Absent: not installed, or nothing to compare.
  std::string note;

  // Targets for ours / peer; where peer_name is empty, for `ours` itself.
  std::optional<double> at_most;
  std::optional<double> at_least;

  std::optional<double> Ratio() const;
  // Absent: the row has no target. False as well where it was not measured.
  std::optional<bool> Held() const;
};

class Table {
 public:
  explicit Table(std::string name) : name_(std::move(name)) {}

  void Add(Row row) { rows_.push_back(std::move(row)); }
  const std::vector<Row>& rows() const { return rows_; }

  // How many rounds there were, and how many of them began while the rest of
  // the machine was idle. Of several calls the fewest idle ones count.
  void SetRounds(int rounds, int idle_rounds);

  // For people: a line for each row.
  std::string Text() const;
  // {"bench", "rounds", "idle_rounds", "rows": [{"what", "unit", "ours",
  // "peer_name", "peer", "ratio", "at_most", "at_least", "held", "note"}]};
  // null: not measured, no target.
  std::string Json() const;
  // Every row that has a target holds it.
  bool Held() const;

 private:
  const std::string name_;
  int rounds_ = 0;
  int idle_rounds_ = 0;
  std::vector<Row> rows_;
};

// Of an even number of values: the mean of the two in the middle; 0 of none.
double Median(std::vector<double> values);
// The value below which `share` of all lie.
double Quantile(std::vector<double> values, double share);

struct Measurement {
  std::string name;  // For errors.
  std::function<absl::StatusOr<double>()> run;
};

// Runs all measurements in turn (A, B, C, A, B, C, ...), `rounds` times after
// one turn that does not count, and returns the median of each. In turn,
// because what else the machine does changes from second to second.
// before_turn: is called before each that counts.
absl::StatusOr<std::vector<double>> MediansInTurn(
    int rounds, const std::vector<Measurement>& measurements,
    const std::function<void()>& before_turn = [] {});

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_TABLE_H_
