// The folder of a training: what it came to, for people, programs and
// TensorBoard.
//
//   history.jsonl          a line of JSON an epoch: EpochResult::ToJson; and
//   one for an evaluation that came later: EvaluationToJson
//   events.out.tfevents.*  the same numbers, and images, for
//   `tensorboard --logdir`
//   result.json            Result::ToJson; once Train returns, after an error
//   too

#ifndef MINIRAY_TRAIN_RUN_FOLDER_H_
#define MINIRAY_TRAIN_RUN_FOLDER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/appended_file.h"
#include "train/callback.h"
#include "train/event_file.h"

namespace miniray::train {

// A callback that trainers add themselves: TrainerOptions::storage_path.
//
// Lines and events are written as the epoch ends. A process killed at any
// moment leaves whole lines, and at most a last one without its line feed.
// What cannot be written is a warning, and is tried again with the next epoch.
class RunFolder : public Callback {
 public:
  // Makes the folder `storage_path`/`name`, and Begin. An empty name is made
  // up: the time, and what makes it unique.
  //
  // Errors: ALREADY_EXISTS, the folder has the epochs of another training.
  // Those of the file system: nothing is lost yet.
  static absl::StatusOr<std::unique_ptr<RunFolder>> Create(
      const std::string& storage_path, const std::string& name);

  // The same, but epochs that are there already stay, until SetHistory, and all
  // else does until Begin: whoever finds that training cannot go on here leaves
  // what there is.
  static absl::StatusOr<std::unique_ptr<RunFolder>> Open(
      const std::string& storage_path, const std::string& name);

  // Training begins here, or goes on: makes a new file for TensorBoard, and
  // removes result.json, which is of the training before. To be called before
  // anything is told. Errors: those of the file system.
  absl::Status Begin();

  // Whether there were epochs in it when it was opened.
  bool had_epochs() const { return history_.initial_bytes() > 0; }

  // Makes history.jsonl that of these epochs: training goes on behind them.
  // TensorBoard's files keep what is in them, but it shows no more what they
  // have of later epochs.
  void SetHistory(TrainContext& context,
                  const std::vector<EpochResult>& history);

  // Absolute.
  const std::string& path() const { return path_; }

  // An image made in or behind this epoch, for TensorBoard. png: a PNG of so
  // many pixels.
  void Image(TrainContext& context, const std::string& name, int epoch,
             const std::string& png, int width, int height);

  void OnEpochEnd(TrainContext& context, const EpochResult& result) override;
  void OnEvaluation(TrainContext& context, const EpochResult& result) override;
  void OnTrainEnd(TrainContext& context, const Result& result) override;

 private:
  RunFolder(std::string path, AppendedFile history);

  void Check(TrainContext& context, const absl::Status& written) const;

  const std::string path_;
  AppendedFile history_;
  std::optional<EventFile> events_;  // Since Begin.
};

// INVALID_ARGUMENT unless `name` can be that of a folder in another; empty can.
absl::Status CheckRunName(const std::string& name);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_RUN_FOLDER_H_
