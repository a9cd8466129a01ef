// Context: what a train function knows of its place in the group, how it works
// with the other ranks, and how it reports. Without LibTorch's front end: what
// needs that has a header of its own, and train_functions.h has them all.

#ifndef MINIRAY_TRAIN_FUNCTIONS_CONTEXT_H_
#define MINIRAY_TRAIN_FUNCTIONS_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "train/checkpoint.h"
#include "train/collective/process_group.h"
#include "train/data/data_loader_options.h"
#include "train/data/dataset.h"
#include "train/data/dataset_shard.h"
#include "train/functions/messages.h"
#include "train/metrics.h"

namespace miniray::train {

struct DistributedOptions;
template <class Model>
class PreparedModel;

// What waits for other ranks cannot go on, because one of them failed: thrown
// by Report, and to be thrown by whatever else waits for them. A function lets
// it pass, or cleans up and throws it on: the driver then looks for the cause
// among the other ranks.
class PeerFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Where a rank's reports go. Not for users.
class ReportSink {
 public:
  virtual ~ReportSink() = default;
  // Blocks until all ranks have made this report. Errors: the group was
  // aborted.
  virtual absl::StatusOr<ReportReply> Exchange(RankReport report) = 0;
};

// One rank's view of one generation. What never changes (rank, config, ...) may
// be read from any thread, and aborted, SetStage, OnAbort and Abort may be
// called from any; all else is for the thread that trains.
//
// Its methods throw rather than return a status: they are called in the midst
// of training code, which LibTorch's exceptions pass through anyway.
class Context {
 public:
  // sink: lives as long.
  Context(GenerationStart start, ReportSink& sink, SharedStart shared = {});
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // --- The place in the group.

  int rank() const { return start_.rank; }              // In [0, world_size).
  int world_size() const { return start_.world_size; }  // Ranks in all.
  // The rank among those on the same node, and how many these are.
  int local_rank() const { return start_.local_rank; }
  int local_world_size() const { return start_.local_world_size; }
  int node_rank() const { return start_.node_rank; }  // Of the node.
  // Counts the runs of the function in this Fit, from 0.
  int generation() const { return start_.generation; }
  const std::string& trial_name() const { return start_.run_name; }
  // For ChooseDevice (train/device.h): "cuda" with ScalingConfig::use_gpu, the
  // device that this rank was given; else "cpu".
  std::string device() const { return start_.use_gpu ? "cuda" : "cpu"; }
  // HOST:PORT at which the ranks' actors serve, by rank: how nodes reach each
  // other. Empty in local mode.
  const std::vector<std::string>& addresses() const { return start_.addresses; }

  // --- The config that the trainer was given.

  // Returns the setting as a T: bool, an integer, a floating-point number or
  // std::string. Throws std::invalid_argument if there is none of that name, or
  // it is of another type or beyond what T can hold; with what there is.
  template <class T>
  T config(absl::string_view name) const {
    RequireConfig(name);
    return ConfigAs<T>(name);
  }
  // The same, but `otherwise` where there is none of that name.
  template <class T>
  T config(absl::string_view name, T otherwise) const {
    return start_.config.Has(name) ? ConfigAs<T>(name) : otherwise;
  }
  const Config& config() const { return start_.config; }

  // --- Working with the other ranks.

  // Gives the models of all ranks rank 0's parameters and buffers, moves the
  // model to device(), and from now on averages its gradients over the ranks
  // while backward() computes them. A collective call. Needs
  // train/functions/prepare_model.h, where what it returns is explained.
  //
  // model: what TORCH_MODULE makes, such as torch::nn::Sequential, or a
  //   std::shared_ptr of a module.
  // Throws: CollectiveError, the ranks' models differ (the message names rank
  // and parameter), or as process_group(). std::runtime_error, there is no such
  // device.
  template <class Model>
  PreparedModel<Model> PrepareModel(Model model);
  template <class Model>
  PreparedModel<Model> PrepareModel(Model model,
                                    const DistributedOptions& options);

  // Returns the loader of this rank's samples of `dataset`, a data set of
  // LibTorch that is asked for samples by index: PreparedDataLoader of
  // train/data/data_loader.h. Needs train/functions/prepare_data_loader.h.
  //
  // Its batches are moved to device(), unless DataLoaderOptions::device says
  // another one.
  //
  // Throws: std::invalid_argument, see train::PrepareDataLoader.
  template <class Dataset>
  auto PrepareDataLoader(Dataset dataset,
                         const DataLoaderOptions& options = {}) const;

  // Returns this rank's part of the data set that TorchTrainerOptions::datasets
  // has under that name, from its first epoch on; its batches are moved to
  // device(). See train/data/dataset_shard.h.
  //
  // Throws: std::invalid_argument, there is none of that name; with what there
  // is.
  DatasetShard GetDatasetShard(absl::string_view name) const;

  // The group of all ranks, for collectives of the function's own: means of
  // metrics, barriers. PrepareModel uses it too. The first call connects the
  // ranks, and all of them must make it. If a rank fails, whatever waits in the
  // group fails with ABORTED or UNAVAILABLE; throw that on, as CollectiveError.
  //
  // Throws: CollectiveError, the ranks do not come together within
  // RunConfig::collective_timeout, or one failed.
  const std::shared_ptr<ProcessGroup>& process_group();

  // --- Checkpoints.

  // What this rank goes on from; null: it begins. The files that the rank gave
  // with the last checkpoint, and besides, those of rank 0 with other names.
  // With another number of ranks than then: as rank modulo their number.
  const CheckpointFiles* GetCheckpoint() const {
    return checkpoint_.empty() ? nullptr : &checkpoint_;
  }
  // Whether the next report shall have a checkpoint: with
  // CheckpointConfig::frequency n, every nth; and when training is asked to
  // end. On all ranks alike.
  bool checkpoint_is_due() const;

  // Both need train/functions/model_state.h, where they are explained.
  template <class Model, class Optimizer>
  CheckpointFiles Checkpoint(Model& model, Optimizer& optimizer, int epoch,
                             bool always = false) const;
  template <class Model, class Optimizer>
  int RestoreFrom(Model& model, Optimizer& optimizer) const;

  // --- Reports.

  // Blocks until all ranks have called it equally often; then the driver has
  // the metrics of all and holds the checkpoint, which it writes to the disk
  // while training goes on. To be called after each epoch, or as often as
  // progress is to be kept.
  //
  // metrics: those of rank 0 are the run's; the others' are kept beside them.
  // checkpoint: what to go on from if training is interrupted behind this
  //   report, as file contents by name (letters, digits, '.', '_', '-'); empty:
  //   none. A rank may leave it to others.
  // Throws: PeerFailure, another rank has failed, or did not come within
  // RunConfig::report_timeout. std::invalid_argument, a file name that cannot
  // be. And something that is no std::exception where training is to end here
  // (a signal, a callback): let it pass.
  void Report(const Metrics& metrics, CheckpointFiles checkpoint = {});

  // Reports so far, of earlier generations and resumed runs too: the number of
  // the next one.
  int num_reports() const { return next_report_; }

  // --- What goes wrong.

  // What the function does now ("loading images"): errors name it where this
  // rank does not come.
  void SetStage(std::string stage) ABSL_LOCKS_EXCLUDED(mu_);

  // Whether the group has been told to stop, because a rank failed. A loop that
  // neither reports nor waits for others may look at it; Report throws anyway.
  bool aborted() const ABSL_LOCKS_EXCLUDED(mu_);

  // While the returned object lives: if the group is told to stop, `handler` is
  // called once, in another thread, to wake up whatever this rank waits in; if
  // it has been told already, at once and in this one. It must not block, throw
  // or end its own object, whose end waits for a handler that runs.
  class AbortHandler;
  [[nodiscard]] std::unique_ptr<AbortHandler> OnAbort(
      std::function<void(const absl::Status&)> handler)
      ABSL_LOCKS_EXCLUDED(mu_);

  // --- For the worker.

  void Abort(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);
  std::string Stage() const ABSL_LOCKS_EXCLUDED(mu_);
  // Reports of this generation.
  int reports_made() const { return next_report_ - start_.first_report; }
  bool stopped() const { return stopped_; }

 private:
  void RequireConfig(absl::string_view name) const;
  bool BoolConfig(absl::string_view name) const;
  int64_t IntConfig(absl::string_view name, int64_t min, uint64_t max) const;
  double DoubleConfig(absl::string_view name) const;
  std::string StringConfig(absl::string_view name) const;

  template <class T>
  T ConfigAs(absl::string_view name) const {
    if constexpr (std::is_same_v<T, bool>) {
      return BoolConfig(name);
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(IntConfig(
          name, std::is_signed_v<T> ? std::numeric_limits<T>::min() : 0,
          static_cast<uint64_t>(std::numeric_limits<T>::max())));
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(DoubleConfig(name));
    } else {
      static_assert(std::is_same_v<T, std::string>,
                    "a setting is a bool, a number or a std::string");
      return StringConfig(name);
    }
  }
  void RemoveHandler(int64_t id) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status ConnectRanks();

  const CheckpointFiles checkpoint_;
  const GenerationStart start_;  // Without the checkpoint.
  const std::map<std::string, Dataset> datasets_;
  ReportSink& sink_;
  int next_report_;
  bool wants_checkpoint_ = false;
  bool stopped_ = false;

  mutable absl::Mutex mu_;
  std::string stage_ ABSL_GUARDED_BY(mu_) = "begins";
  absl::Status abort_reason_ ABSL_GUARDED_BY(mu_);
  std::map<int64_t, std::function<void(const absl::Status&)>> handlers_
      ABSL_GUARDED_BY(mu_);
  int64_t next_handler_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t running_handler_ ABSL_GUARDED_BY(mu_) = -1;

  std::shared_ptr<ProcessGroup> group_;         // Null: not connected.
  std::unique_ptr<AbortHandler> aborts_group_;  // Ends before all else.
};

class Context::AbortHandler {
 public:
  ~AbortHandler() { context_.RemoveHandler(id_); }
  AbortHandler(const AbortHandler&) = delete;
  AbortHandler& operator=(const AbortHandler&) = delete;

 private:
  friend class Context;
  AbortHandler(Context& context, int64_t id) : context_(context), id_(id) {}

  Context& context_;
  const int64_t id_;
};

namespace internal {
// Thrown by Report where training ends; no std::exception, so that functions
// that catch those do not catch it.
struct TrainingEnds {};
}  // namespace internal

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_FUNCTIONS_CONTEXT_H_
