// Models and optimizers in checkpoints, and the README's examples.

#include "train/functions/model_state.h"

#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/readme_code.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/train/functions/readme_example.h"
#include "tests/train/functions/readme_steps.h"
#include "train/checkpoint.h"

namespace miniray::train {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kEpochs = 6;

// Keeps the checkpoint of the report after which it stops.
class StopAfter : public ReportSink {
 public:
  explicit StopAfter(int num_reports) : left_(num_reports) {}
  absl::StatusOr<ReportReply> Exchange(RankReport report) override {
    last = std::move(report);
    return ReportReply{.stop = --left_ == 0};
  }
  RankReport last;

 private:
  int left_;
};

// One rank's training; with random numbers, and momentum in the optimizer.
// Returns the parameters as bytes.
std::string Train(Context& ctx) {
  torch::manual_seed(1 + ctx.rank());
  torch::nn::Linear model(3, 2);
  torch::optim::SGD optimizer(model->parameters(),
                              torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto bytes = [&] {
    std::string all;
    for (const torch::Tensor& p : model->parameters()) {
      all.append(static_cast<const char*>(p.data_ptr()), p.nbytes());
    }
    return all;
  };
  try {
    for (int epoch = ctx.RestoreFrom(model, optimizer); epoch < kEpochs;
         ++epoch) {
      optimizer.zero_grad();
      model->forward(torch::randn({4, 3})).pow(2).sum().backward();
      optimizer.step();
      ctx.Report({}, ctx.Checkpoint(model, optimizer, epoch));
    }
  } catch (const internal::TrainingEnds&) {
  }
  return bytes();
}

TEST(ModelStateTest, TrainingThatGoesOnIsTheOneThatNeverStoppedBitForBit) {
  StopAfter whole_sink(kEpochs);
  Context whole({}, whole_sink);
  const std::string expected = Train(whole);

  for (int stop = 1; stop < kEpochs; ++stop) {
    StopAfter first_sink(stop);
    Context first({}, first_sink);
    EXPECT_NE(Train(first), expected);
    StopAfter second_sink(kEpochs - stop);
    Context second(
        {.first_report = stop, .checkpoint = first_sink.last.checkpoint},
        second_sink);
    EXPECT_EQ(Train(second), expected) << stop;
  }
}

TEST(ModelStateTest, WhereNoCheckpointIsDueNothingIsMade) {
  StopAfter sink(100);
  Context ctx({.checkpoint_frequency = 2}, sink);
  torch::nn::Linear model(3, 2);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  EXPECT_THAT(ctx.Checkpoint(model, optimizer, 0), IsEmpty());
  EXPECT_THAT(ctx.Checkpoint(model, optimizer, 0, /*always=*/true),
              Contains(Key("model.pt")));
  ctx.Report({});
  EXPECT_THAT(ctx.Checkpoint(model, optimizer, 1), Contains(Key("model.pt")));
}

TEST(ModelStateTest, ModelsAreTakenHoweverTheyAreHeld) {
  StopAfter sink(1);
  const Context ctx({}, sink);
  torch::nn::Linear holder(3, 2);
  torch::optim::SGD optimizer(holder->parameters(), 0.1);
  std::shared_ptr<torch::nn::LinearImpl> pointer = holder.ptr();
  torch::nn::LinearImpl& module = *holder;
  const CheckpointFiles files = ctx.Checkpoint(holder, optimizer, 0);
  EXPECT_EQ(ctx.Checkpoint(pointer, optimizer, 0), files);
  EXPECT_EQ(ctx.Checkpoint(module, optimizer, 0), files);
  EXPECT_EQ(ctx.RestoreFrom(holder, optimizer), 0);
}

TEST(ModelStateTest, SeveralModelsAndExtrasComeBack) {
  StopAfter sink(1);
  const Context ctx({}, sink);
  torch::nn::Linear g(2, 2), d(2, 1);
  torch::optim::Adam adam(g->parameters(), 0.1);
  const TrainingParts parts = {.models = {{"g", &*g}, {"d", &*d}},
                               .optimizers = {{"adam", &adam}}};
  const CheckpointFiles files =
      SaveParts(ctx, parts, 4, {.extras = {{"seen", 1200}}});
  const torch::Tensor before = d->weight.detach().clone();
  {
    const torch::NoGradGuard no_grad;
    d->weight.zero_();
  }
  const Context next({.checkpoint = files}, sink);
  const RestoredState state = RestoreParts(next, parts);
  EXPECT_EQ(state.next_epoch, 5);
  EXPECT_THAT(state.extras.GetInt("seen", 0), IsOkAndHolds(1200));
  EXPECT_THAT(state.extras.values(), SizeIs(1));
  EXPECT_TRUE(torch::equal(d->weight, before));
}

TEST(ModelStateTest, OfReplicatedModelsTheOtherRanksGiveTheirRandomNumbers) {
  StopAfter sink(1);
  CheckpointFiles files[2];
  torch::Tensor next_random[2];
  torch::nn::Linear model(2, 2);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const TrainingParts parts = {.models = {{"model", &*model}},
                               .optimizers = {{"sgd", &optimizer}}};
  for (int rank = 0; rank < 2; ++rank) {
    torch::manual_seed(10 + rank);
    const Context ctx({.rank = rank, .world_size = 2}, sink);
    files[rank] = SaveParts(ctx, parts, 2,
                            {.replicated = true, .extras = {{"rank", rank}}});
    next_random[rank] = torch::rand({3});
  }
  EXPECT_THAT(files[0], Contains(Key("model.pt")));
  EXPECT_THAT(files[1], Not(Contains(Key(HasSubstr("model.pt")))));
  const torch::Tensor before = model->weight.detach().clone();
  for (int rank = 0; rank < 2; ++rank) {
    {
      const torch::NoGradGuard no_grad;
      model->weight.zero_();
    }
    CheckpointFiles got = files[rank];  // As the trainer gives them.
    got.insert(files[0].begin(), files[0].end());
    const Context ctx({.rank = rank, .world_size = 2, .checkpoint = got}, sink);
    const RestoredState state = RestoreParts(ctx, parts);
    EXPECT_EQ(state.next_epoch, 3);
    EXPECT_THAT(state.extras.GetInt("rank", -1), IsOkAndHolds(rank));
    EXPECT_TRUE(torch::equal(model->weight, before));
    EXPECT_TRUE(torch::equal(torch::rand({3}), next_random[rank]));
  }
}

TEST(ModelStateTest, ACheckpointThatDoesNotFitThrowsWithTheFile) {
  StopAfter sink(1);
  torch::nn::Linear model(2, 2), other(3, 3);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  const Context ctx({}, sink);
  const CheckpointFiles files = ctx.Checkpoint(model, optimizer, 0);
  const auto restore = [&](const CheckpointFiles& from) -> std::string {
    const Context next({.checkpoint = from}, sink);
    try {
      next.RestoreFrom(other, optimizer);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(restore(files), HasSubstr("model.pt"));
  EXPECT_THAT(restore({{"own", "file"}}), HasSubstr("no file 'model.pt'"));
}

TEST(ReadmeExampleTest, LearnsAndGoesOn) {
  const TempFolder temp;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(temp.path());
  for (int i = 0; i < 2; ++i) {
    const auto result = Learn();
    ASSERT_THAT(result, IsOk());
    EXPECT_THAT(result->history, SizeIs(40));
    EXPECT_LT(result->metrics().at("loss"), 1e-3);
    EXPECT_GT(result->history[0].metrics.at("loss"), 0.1);
    EXPECT_THAT(ReadCheckpoint(result->checkpoint), IsOk());
  }
  std::filesystem::current_path(before);
}

// 6 batches an epoch and rank, so 3 reports.
TEST(ReadmeExampleTest, ACheckpointWithinAnEpochIsGoneOnFrom) {
  const TempFolder temp;
  TorchTrainerOptions options = {
      .config = {{"epochs", 3}},
      .scaling = {.num_workers = 2},
      .run = {.name = "whole", .storage_path = temp.path()}};
  const auto whole = TorchTrainer(TrainBySteps, options).Fit();
  ASSERT_THAT(whole, IsOk());
  ASSERT_THAT(whole->history, SizeIs(9));
  EXPECT_LT(whole->metrics().at("loss"), 1e-2);

  options.run.name = "rest";
  options.resume_from_checkpoint = temp / "whole/checkpoint_000004";
  const auto rest = TorchTrainer(TrainBySteps, options).Fit();
  ASSERT_THAT(rest, IsOk());
  ASSERT_THAT(rest->history, SizeIs(9));
  for (int i = 4; i < 9; ++i) {
    EXPECT_EQ(rest->history[i].per_worker, whole->history[i].per_worker) << i;
  }
}

TEST(ReadmeExampleTest, TheReadmeShowsTheCodeThatIsTestedHere) {
  const std::string readme = "train/functions/README.md";
  ExpectReadmeShows(readme, "tests/train/functions/readme_example.h",
                    /*goes_on=*/true);
  ExpectReadmeSectionShows(readme, "Checkpoints within an epoch",
                           {"tests/train/functions/readme_steps.h"});
}

}  // namespace
}  // namespace miniray::train

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
