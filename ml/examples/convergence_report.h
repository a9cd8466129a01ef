// What `strategy_convergence` found, as text and as JSON, and the statements
// that it is held to.

#ifndef MINIRAY_ML_EXAMPLES_CONVERGENCE_REPORT_H_
#define MINIRAY_ML_EXAMPLES_CONVERGENCE_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ml/examples/convergence_run.h"

namespace miniray::ml {

// Groups of runs that are compared with each other.
enum class ConvergencePart {
  kEveryStrategy,  // Frequent synchronisation.
  kGradients,      // The server takes each step, with the mean gradient.
  kRareSyncs,      // AdamW on the workers, as DiLoCo has it.
  kBrokenWorker,   // Each strategy with sound workers, and with one broken.
};

struct ConvergenceRow {
  ConvergencePart part = ConvergencePart::kEveryStrategy;
  std::string strategy;
  std::string options;  // "lr=0.01", of strategy or worker.
  int workers = 1;
  int broken = 0;  // Of them.
  ConvergenceResult result;
};

struct ConvergenceStatement {
  std::string text;
  bool held = false;
};

// A line for people, and the heading of such lines.
std::string ConvergenceHeading();
std::string ConvergenceLine(const ConvergenceRow& row);
std::string ConvergenceLine(const ConvergenceStatement& statement);

// The statements about those rows that are there:
// - kRareSyncs: the accuracy of "diloco" is at least that of "average".
// - kBrokenWorker: with a broken worker, "average" fails or loses more than
//   10 points of accuracy; every other strategy loses one at most.
std::vector<ConvergenceStatement> ConvergenceStatements(
    const std::vector<ConvergenceRow>& rows);

// {"settings": {NAME: TEXT}, "rows": [{"part", "strategy", "options",
// "workers", "broken", "accuracy", "loss", "seconds", "error"}], "statements":
// [{"text", "held"}]}; a loss that is not finite is null.
std::string ConvergenceJson(const std::map<std::string, std::string>& settings,
                            const std::vector<ConvergenceRow>& rows);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_EXAMPLES_CONVERGENCE_REPORT_H_
