// Predicts a column of a table from the others, with workers that train on
// parts of it. See README.md.

#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ml/cli/flags.h"
#include "ml/data/csv_reader.h"
#include "ml/data/friedman.h"
#include "ml/examples/regression_worker.h"
#include "runtime/api/miniray.h"
#include "runtime/base/status_macros.h"
#include "train/data_parallel_trainer.h"

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
ABSL_FLAG(int, sync_interval, 1, "epochs from one synchronisation to the next");
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
          .other_flags = {{"address=HOST:PORT",
                           "head of the cluster; without it, and without "
                           "MINIRAY_ADDRESS, one is started for the run"}},
          .examples = {
              {"regression", "made-up data"},
              {"regression --data=houses.csv --target=price", "your own"}}};
}

class RegressionTrainer : public train::DataParallelTrainer<RegressionWorker> {
 public:
  RegressionTrainer(train::TrainerOptions options,
                    RegressionWorkerOptions worker)
      : DataParallelTrainer(std::move(options)), worker_(std::move(worker)) {}

 protected:
  absl::StatusOr<ActorHandle<RegressionWorker>> CreateWorker(
      int worker_id, const train::Config& config) override {
    return cluster().CreateActor<RegressionWorker>(WorkerOptions(worker_id),
                                                   worker_);
  }
  void OnEpochEnd(int epoch, const train::EpochResult& result) override {
    std::cout << absl::StrFormat(
                     "epoch %3d  loss %.4f  test squared error %.4f", epoch + 1,
                     result.metrics.at("loss"),
                     result.metrics.at("eval/squared_error"))
              << std::endl;
  }

 private:
  const RegressionWorkerOptions worker_;
};

absl::Status Run() {
  if (const std::string path = absl::GetFlag(FLAGS_make_data); !path.empty()) {
    MR_ASSIGN_OR_RETURN(const NumberTable table,
                        MakeFriedmanTable(absl::GetFlag(FLAGS_rows),
                                          absl::GetFlag(FLAGS_seed)));
    return WriteCsv(table, path);
  }
  if (absl::GetFlag(FLAGS_epochs) < 1) {
    return absl::InvalidArgumentError("--epochs must be 1 or more");
  }
  RegressionWorkerOptions worker{.made_rows = absl::GetFlag(FLAGS_rows),
                                 .target = absl::GetFlag(FLAGS_target),
                                 .test_share = absl::GetFlag(FLAGS_test_share),
                                 .batch_size = absl::GetFlag(FLAGS_batch_size),
                                 .hidden = absl::GetFlag(FLAGS_hidden),
                                 .lr = absl::GetFlag(FLAGS_lr),
                                 .seed = absl::GetFlag(FLAGS_seed)};
  // From where this program was started, not from where a daemon was.
  if (const std::string data = absl::GetFlag(FLAGS_data); !data.empty()) {
    worker.data = std::filesystem::absolute(data).string();
  }
  RegressionTrainer trainer(
      {.num_workers = absl::GetFlag(FLAGS_workers),
       .sync_interval = absl::GetFlag(FLAGS_sync_interval),
       .evaluate_every = 1},
      worker);
  MR_ASSIGN_OR_RETURN(const train::Result result,
                      trainer.Train({.epochs = absl::GetFlag(FLAGS_epochs)}));
  const train::Metrics& last = result.history.back().metrics;
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
  return absl::OkStatus();
}

}  // namespace
}  // namespace miniray::ml

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  const miniray::ml::ProgramHelp help = miniray::ml::Help();
  if (const auto code = miniray::ml::ParseCommandLine(help, argc, argv)) {
    return *code;
  }
  const absl::Status status = miniray::ml::Run();
  return status.ok() ? 0 : miniray::ml::Fail(help, status, 1);
}
