// What the compiler takes for a worker. A failure here is a failure to compile;
// the tests below run so that somebody counts them.

#include "train/worker_contract.h"

#include "gtest/gtest.h"
#include "train/optional_methods.h"

namespace miniray::train {
namespace {

struct Minimal {
  Metrics TrainEpoch(int) { return {}; }
  NamedTensors GetWeights() { return {}; }
  void SetWeights(NamedTensors) {}
};
MINIRAY_ACTOR(Minimal, Constructor<>, &Minimal::TrainEpoch,
              &Minimal::GetWeights, &Minimal::SetWeights);

struct WithStatus {
  absl::StatusOr<Metrics> TrainEpoch(int64_t) { return Metrics(); }
  absl::StatusOr<NamedTensors> GetWeights() const { return NamedTensors(); }
  absl::Status SetWeights(const NamedTensors&) { return absl::OkStatus(); }
  absl::Status LoadDataShard(int64_t, int) { return absl::OkStatus(); }
};
MINIRAY_ACTOR(WithStatus, Constructor<>, &WithStatus::TrainEpoch,
              &WithStatus::GetWeights, &WithStatus::SetWeights,
              &WithStatus::LoadDataShard);

struct WithConfig : Minimal {
  void LoadDataShard(int, int, const Config&) {}
};
MINIRAY_ACTOR(WithConfig, Constructor<>, &WithConfig::TrainEpoch,
              &WithConfig::GetWeights, &WithConfig::SetWeights,
              &WithConfig::LoadDataShard);

// Its base class is an actor class; it is not.
struct NoActor : Minimal {};

struct Unlisted : Minimal {};
MINIRAY_ACTOR(Unlisted, Constructor<>, &Unlisted::TrainEpoch,
              &Unlisted::SetWeights);

struct UnlistedShard : Minimal {
  void LoadDataShard(int, int) {}
};
MINIRAY_ACTOR(UnlistedShard, Constructor<>, &UnlistedShard::TrainEpoch,
              &UnlistedShard::GetWeights, &UnlistedShard::SetWeights);

struct WithCheckpoint : Minimal {
  absl::StatusOr<CheckpointFiles> SaveCheckpoint() { return CheckpointFiles(); }
  absl::Status LoadCheckpoint(const CheckpointFiles&) {
    return absl::OkStatus();
  }
};
MINIRAY_ACTOR(WithCheckpoint, Constructor<>, &WithCheckpoint::TrainEpoch,
              &WithCheckpoint::GetWeights, &WithCheckpoint::SetWeights,
              &WithCheckpoint::SaveCheckpoint, &WithCheckpoint::LoadCheckpoint);

struct HalfACheckpoint : Minimal {
  CheckpointFiles SaveCheckpoint() { return {}; }
};
MINIRAY_ACTOR(HalfACheckpoint, Constructor<>, &HalfACheckpoint::TrainEpoch,
              &HalfACheckpoint::GetWeights, &HalfACheckpoint::SetWeights,
              &HalfACheckpoint::SaveCheckpoint);

struct WrongResult : Minimal {
  double TrainEpoch(int) { return 0; }
};
MINIRAY_ACTOR(WrongResult, Constructor<>, &WrongResult::TrainEpoch,
              &WrongResult::GetWeights, &WrongResult::SetWeights);

struct WrongArgument : Minimal {
  void SetWeights(std::vector<at::Tensor>) {}
};
MINIRAY_ACTOR(WrongArgument, Constructor<>, &WrongArgument::TrainEpoch,
              &WrongArgument::GetWeights, &WrongArgument::SetWeights);

struct NoTrainEpoch {
  NamedTensors GetWeights() { return {}; }
  void SetWeights(NamedTensors) {}
};
MINIRAY_ACTOR(NoTrainEpoch, Constructor<>, &NoTrainEpoch::GetWeights,
              &NoTrainEpoch::SetWeights);

struct WithOptional : Minimal {
  Metrics EvaluateShard(int, int) { return {}; }
  absl::StatusOr<Metrics> TrainSteps(int, int64_t, int64_t) {
    return Metrics();
  }
  Progress GetProgress() const { return {}; }
  absl::StatusOr<Notes> GetNotes() { return Notes(); }
};
MINIRAY_ACTOR(WithOptional, Constructor<>, &WithOptional::EvaluateShard,
              &WithOptional::TrainSteps, &WithOptional::GetProgress,
              &WithOptional::GetNotes);

struct WithConfigEvaluation : Minimal {
  absl::StatusOr<Metrics> EvaluateShard(int, int, const Config&) {
    return Metrics();
  }
};
MINIRAY_ACTOR(WithConfigEvaluation, Constructor<>,
              &WithConfigEvaluation::EvaluateShard);

struct WithWrongOptional : Minimal {
  double EvaluateShard(int, int) { return 0; }
  Metrics TrainSteps(int, int64_t) { return {}; }
  std::string GetNotes() { return ""; }
};
MINIRAY_ACTOR(WithWrongOptional, Constructor<>,
              &WithWrongOptional::EvaluateShard, &WithWrongOptional::TrainSteps,
              &WithWrongOptional::GetNotes);

struct WithOverlap : Minimal {
  absl::StatusOr<ReadOnly<NamedTensors>> LendWeights() {
    return ReadOnly<NamedTensors>();
  }
  absl::Status SnapshotWeights() { return absl::OkStatus(); }
  void ApplyWeights(bool) {}
  double NumSamples() const { return 1; }
};
MINIRAY_ACTOR(WithOverlap, Constructor<>, &WithOverlap::LendWeights,
              &WithOverlap::SnapshotWeights, &WithOverlap::ApplyWeights,
              &WithOverlap::NumSamples);

struct HalfAnOverlap : Minimal {
  void SnapshotWeights() {}
};
MINIRAY_ACTOR(HalfAnOverlap, Constructor<>, &HalfAnOverlap::SnapshotWeights);

TEST(WorkerContractTest, AcceptsTheFormsThatItStates) {
  EXPECT_TRUE(TrainWorker<Minimal>);
  EXPECT_TRUE(TrainWorker<WithStatus>);
  EXPECT_TRUE(TrainWorker<WithConfig>);
  EXPECT_TRUE(TrainWorker<WithCheckpoint>);
}

TEST(WorkerContractTest, RefusesWhatLacksSomething) {
  EXPECT_FALSE(TrainWorker<int>);
  EXPECT_FALSE(TrainWorker<NoActor>);
  EXPECT_FALSE(TrainWorker<Unlisted>);
  EXPECT_FALSE(TrainWorker<UnlistedShard>);
  EXPECT_FALSE(TrainWorker<HalfACheckpoint>);
  EXPECT_FALSE(TrainWorker<WrongResult>);
  EXPECT_FALSE(TrainWorker<WrongArgument>);
  EXPECT_FALSE(TrainWorker<NoTrainEpoch>);
}

TEST(WorkerContractTest, KnowsWhatElseAWorkerHas) {
  EXPECT_TRUE(internal::HasEvaluateShard<WithOptional>);
  EXPECT_FALSE(internal::HasConfigEvaluateShard<WithOptional>);
  EXPECT_TRUE(internal::HasTrainSteps<WithOptional>);
  EXPECT_TRUE(internal::HasProgress<WithOptional>);
  EXPECT_TRUE(internal::HasNotes<WithOptional>);
  EXPECT_TRUE(internal::HasEvaluateShard<WithConfigEvaluation>);
  EXPECT_TRUE(internal::HasConfigEvaluateShard<WithConfigEvaluation>);

  EXPECT_TRUE(internal::HasOverlap<WithOverlap>);
  EXPECT_TRUE(internal::HasNumSamples<WithOverlap>);
  EXPECT_FALSE(internal::HasBufferNames<WithOverlap>);
  EXPECT_FALSE(internal::HasOverlap<HalfAnOverlap>);
  EXPECT_FALSE(internal::OverlapIsFine<HalfAnOverlap>);
  EXPECT_TRUE(internal::OverlapIsFine<Minimal>);

  EXPECT_FALSE(internal::HasEvaluateShard<Minimal>);
  EXPECT_TRUE(internal::EvaluateShardIsFine<Minimal>);
  EXPECT_TRUE(internal::TrainStepsIsFine<Minimal>);
  EXPECT_FALSE(internal::HasProgress<Minimal>);
  EXPECT_FALSE(internal::EvaluateShardIsFine<WithWrongOptional>);
  EXPECT_FALSE(internal::TrainStepsIsFine<WithWrongOptional>);
  EXPECT_FALSE(internal::HasNotes<Minimal>);
  EXPECT_TRUE(internal::NotesAreFine<Minimal>);
  EXPECT_FALSE(internal::NotesAreFine<WithWrongOptional>);
}

TEST(WorkerContractTest, KnowsHowAWorkerTakesItsShard) {
  EXPECT_EQ(internal::ShardCallOf<Minimal>(), internal::ShardCall::kNone);
  EXPECT_EQ(internal::ShardCallOf<WithStatus>(), internal::ShardCall::kPlain);
  EXPECT_EQ(internal::ShardCallOf<WithConfig>(),
            internal::ShardCall::kWithConfig);
}

}  // namespace
}  // namespace miniray::train
