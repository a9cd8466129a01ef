#include "ml/examples/regression_flags.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "ml/cli/flags.h"
#include "ml/data/csv_reader.h"
#include "ml/data/friedman.h"
#include "runtime/base/status_macros.h"

ABSL_FLAG(
    std::string, data, "",
    "CSV file with a line of names, on the workers' machines; without it, "
    "Friedman's made-up table");
ABSL_FLAG(std::string, target, "", "column to predict; empty: the last one");
ABSL_FLAG(double, test_share, 0.2, "share of the rows to test on");
ABSL_FLAG(int64_t, rows, 10000, "rows of the made-up table");
ABSL_FLAG(std::string, make_data, "",
          "write the made-up table to this CSV file, and end");
ABSL_FLAG(int, workers, 2, "workers, each in a process of its own");
ABSL_FLAG(int, epochs, 20, "passes over the data");
ABSL_FLAG(
    int, sync_interval, 1,
    "epochs from one synchronisation, and a look at the rows to test on, to "
    "the next");
ABSL_FLAG(int64_t, batch_size, 64, "rows in a step of a worker");
ABSL_FLAG(int64_t, hidden, 64, "units of each hidden layer");
ABSL_FLAG(double, lr, 0.003, "learning rate of Adam");
ABSL_FLAG(uint64_t, seed, 1, "the same seed gives the same figures");

namespace miniray::ml {
namespace {

ProgramHelp Help() {
  return {.name = "regression",
          .summary =
              "Trains a small network to predict a column of a table from the "
              "others, on workers with a part of the rows each.",
          .groups = {{"Data",
                      {"data", "target", "test_share", "rows", "make_data"}},
                     {"Training",
                      {"workers", "epochs", "sync_interval", "batch_size",
                       "hidden", "lr", "seed"}}},
          .examples = {
              {"regression", "made-up data"},
              {"regression --data=houses.csv --target=price", "your own"}}};
}

absl::Status MakeData(const std::string& path) {
  MR_ASSIGN_OR_RETURN(
      const NumberTable table,
      MakeFriedmanTable(absl::GetFlag(FLAGS_rows), absl::GetFlag(FLAGS_seed)));
  return WriteCsv(table, path);
}

}  // namespace

std::optional<int> ParseRegressionFlags(int argc, char** argv,
                                        RegressionFlags* flags) {
  if (const auto code = ParseCommandLine(Help(), argc, argv)) return code;
  if (const std::string path = absl::GetFlag(FLAGS_make_data); !path.empty()) {
    return RegressionExitCode(MakeData(path));
  }
  *flags = {.workers = absl::GetFlag(FLAGS_workers),
            .epochs = absl::GetFlag(FLAGS_epochs),
            .sync_interval = absl::GetFlag(FLAGS_sync_interval),
            .data = {.made_rows = absl::GetFlag(FLAGS_rows),
                     .target = absl::GetFlag(FLAGS_target),
                     .test_share = absl::GetFlag(FLAGS_test_share),
                     .batch_size = absl::GetFlag(FLAGS_batch_size),
                     .hidden = absl::GetFlag(FLAGS_hidden),
                     .lr = absl::GetFlag(FLAGS_lr),
                     .seed = absl::GetFlag(FLAGS_seed)}};
  // From where this program was started, not from where a daemon was.
  if (const std::string data = absl::GetFlag(FLAGS_data); !data.empty()) {
    flags->data.data = std::filesystem::absolute(data).string();
  }
  if (flags->epochs >= 1) return std::nullopt;
  return RegressionExitCode(
      absl::InvalidArgumentError("--epochs must be 1 or more"));
}

void PrintRegressionEpoch(int epoch, const train::Metrics& metrics) {
  std::cout << absl::StrFormat("epoch %3d  loss %.4f", epoch + 1,
                               metrics.at("loss"));
  const auto error = metrics.find("eval/squared_error");
  if (error != metrics.end()) {
    std::cout << absl::StrFormat("  test squared error %.4f", error->second);
  }
  std::cout << std::endl;
}

void PrintRegressionResult(const train::Metrics& last) {
  const double squared = last.at("eval/squared_error");
  std::cout << absl::StrFormat(
      "On %.0f rows that nobody trained on: root of the mean squared error "
      "%.4f, mean absolute error %.4f",
      last.at("eval/samples"), std::sqrt(squared),
      last.at("eval/absolute_error"));
  // R^2 means nothing where all targets are alike.
  const double constant = last.at("eval/constant_squared_error");
  if (constant > 0) {
    std::cout << absl::StrFormat(", R^2 %.4f", 1 - squared / constant);
  }
  std::cout << "\n";
}

int RegressionExitCode(const absl::Status& status) {
  return Finish(Help(), status);
}

}  // namespace miniray::ml
