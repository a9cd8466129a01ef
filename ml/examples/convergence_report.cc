#include "ml/examples/convergence_report.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace miniray::ml {
namespace {

constexpr double kSmallLoss = 0.01;  // Of accuracy: 1 point.
constexpr double kGreatLoss = 0.10;
// Accuracies are shares of test images: no difference is smaller than that.
constexpr double kRounding = 1e-9;

const char* PartName(ConvergencePart part) {
  switch (part) {
    case ConvergencePart::kEveryStrategy:
      return "every strategy";
    case ConvergencePart::kGradients:
      return "gradients";
    case ConvergencePart::kRareSyncs:
      return "rare synchronisations";
    case ConvergencePart::kBrokenWorker:
      return "broken worker";
  }
  return "";
}

const ConvergenceRow* Find(const std::vector<ConvergenceRow>& rows,
                           ConvergencePart part, const std::string& strategy,
                           int broken) {
  for (const ConvergenceRow& row : rows) {
    if (row.part == part && row.strategy == strategy && row.broken == broken) {
      return &row;
    }
  }
  return nullptr;
}

double Accuracy(const ConvergenceRow& row) {
  return row.result.evaluation.accuracy;
}

std::string Percent(const ConvergenceRow& row) {
  return absl::StrFormat("%.2f %%", 100 * Accuracy(row));
}

ConvergenceStatement AboutBrokenWorker(const ConvergenceRow& sound,
                                       const ConvergenceRow& broken) {
  const double loss = Accuracy(sound) - Accuracy(broken);
  const bool failed = !broken.result.status.ok();
  ConvergenceStatement statement;
  if (sound.strategy == "average") {
    statement.held = failed || loss > kGreatLoss;
    statement.text = absl::StrFormat(
        "average does not stand a broken worker: %s instead of %s%s",
        Percent(broken), Percent(sound), failed ? ", and it failed" : "");
  } else {
    statement.held = !failed && loss <= kSmallLoss + kRounding;
    statement.text = absl::StrFormat(
        "%s loses at most 1 point with a broken worker: %s instead of %s%s",
        sound.strategy, Percent(broken), Percent(sound),
        failed ? ", and it failed" : "");
  }
  return statement;
}

}  // namespace

std::string ConvergenceHeading() {
  return absl::StrFormat("%-18s %-34s %7s %6s %9s %8s %8s", "strategy",
                         "options", "workers", "broken", "accuracy", "loss",
                         "seconds");
}

std::string ConvergenceLine(const ConvergenceRow& row) {
  const double loss = row.result.evaluation.loss;
  std::string line =
      absl::StrFormat("%-18s %-34s %7d %6d %9s %8s %8.1f", row.strategy,
                      row.options, row.workers, row.broken, Percent(row),
                      std::isfinite(loss) ? absl::StrFormat("%.4g", loss) : "-",
                      row.result.seconds);
  if (!row.result.status.ok()) {
    absl::StrAppendFormat(&line, "\n  ended early: %s",
                          row.result.status.message());
  }
  return line;
}

std::string ConvergenceLine(const ConvergenceStatement& statement) {
  return absl::StrFormat("%-6s  %s", statement.held ? "holds" : "MISSED",
                         statement.text);
}

std::vector<ConvergenceStatement> ConvergenceStatements(
    const std::vector<ConvergenceRow>& rows) {
  std::vector<ConvergenceStatement> statements;
  const ConvergenceRow* const average =
      Find(rows, ConvergencePart::kRareSyncs, "average", 0);
  const ConvergenceRow* const diloco =
      Find(rows, ConvergencePart::kRareSyncs, "diloco", 0);
  if (average != nullptr && diloco != nullptr) {
    statements.push_back(
        {.text = absl::StrFormat("diloco is at least as good as average where "
                                 "synchronisations are rare: %s and %s",
                                 Percent(*diloco), Percent(*average)),
         .held = Accuracy(*diloco) >= Accuracy(*average) - kRounding});
  }
  for (const ConvergenceRow& row : rows) {
    if (row.part != ConvergencePart::kBrokenWorker || row.broken == 0) continue;
    const ConvergenceRow* const sound = Find(rows, row.part, row.strategy, 0);
    if (sound != nullptr) statements.push_back(AboutBrokenWorker(*sound, row));
  }
  return statements;
}

std::string ConvergenceJson(const std::map<std::string, std::string>& settings,
                            const std::vector<ConvergenceRow>& rows) {
  nlohmann::json json = {{"settings", settings},
                         {"rows", nlohmann::json::array()},
                         {"statements", nlohmann::json::array()}};
  for (const ConvergenceRow& row : rows) {
    json["rows"].push_back(
        {{"part", PartName(row.part)},
         {"strategy", row.strategy},
         {"options", row.options},
         {"workers", row.workers},
         {"broken", row.broken},
         {"accuracy", Accuracy(row)},
         {"loss", row.result.evaluation.loss},
         {"seconds", row.result.seconds},
         {"error", std::string(row.result.status.message())}});
  }
  for (const ConvergenceStatement& statement : ConvergenceStatements(rows)) {
    json["statements"].push_back(
        {{"text", statement.text}, {"held", statement.held}});
  }
  return json.dump(2);
}

}  // namespace miniray::ml
