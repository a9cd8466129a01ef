// The README's example, on a cluster that the trainer starts for itself.

#include "tests/train/readme_example.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/readme_code.h"
#include "tools/cli/process_tree.h"

namespace {

using ::miniray::cli::Descendants;
using ::miniray::cli::ProcessId;
using ::testing::IsEmpty;

// Of these processes those that live, once none does or a minute has passed.
std::vector<ProcessId> StillAlive(std::vector<ProcessId> processes) {
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (true) {
    std::erase_if(processes, [](const ProcessId& process) {
      return !miniray::cli::IsAlive(process);
    });
    if (processes.empty() || absl::Now() > deadline) return processes;
    absl::SleepFor(absl::Milliseconds(5));
  }
}

TEST(ReadmeExampleTest, LearnsOnAClusterOfItsOwn) {
  LineTrainer trainer({.num_workers = 2, .sync_interval = 5});
  const auto result = trainer.Train({.epochs = 60, .config = {{"lr", 0.2}}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->history[0].metrics.at("loss"), 0.1);
  EXPECT_LT(result->metrics().at("loss"), 1e-4);
  EXPECT_EQ(result->metrics().at("samples"), 1200);

  const auto weights = trainer.PullWeights();
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_EQ(weights->at(0).first, "weight");
  EXPECT_NEAR(weights->at(0).second[0][0].item<float>(), 2, 0.02);
  EXPECT_NEAR(weights->at(0).second[0][1].item<float>(), -1, 0.02);
  for (const auto& worker : trainer.workers()) {
    const auto own = worker.Call<&LineWorker::GetWeights>().Get();
    ASSERT_TRUE(own.ok()) << own.status();
    for (size_t i = 0; i < own->size(); ++i) {
      const torch::Tensor& a = own->at(i).second;
      const torch::Tensor& b = weights->at(i).second;
      ASSERT_EQ(a.sizes(), b.sizes());
      EXPECT_EQ(std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()), 0);
    }
  }

  const auto worker = trainer.workers()[0];
  trainer.Shutdown();
  EXPECT_FALSE(worker.Call<&LineWorker::GetWeights>().Get().ok());
}

// Head and daemon too, whether training ends well or not.
TEST(ReadmeExampleTest, AClusterOfItsOwnEndsWithTheTrainersScope) {
  ASSERT_THAT(Descendants(getpid()), IsEmpty());
  std::vector<ProcessId> processes;
  {
    LineTrainer trainer({.num_workers = 2});
    ASSERT_TRUE(trainer.Train({.epochs = 1}).ok());
    processes = Descendants(getpid());
    EXPECT_GE(processes.size(), 5)
        << "a head, a daemon, a parameter server and two workers";
  }
  EXPECT_THAT(StillAlive(processes), IsEmpty());
  {
    LineTrainer trainer({.num_workers = 2});
    EXPECT_FALSE(trainer.Train({.config = {{"lr", "fast"}}}).ok());
    processes = Descendants(getpid());
  }
  EXPECT_THAT(StillAlive(processes), IsEmpty());
  EXPECT_THAT(Descendants(getpid()), IsEmpty());
}

TEST(ReadmeExampleTest, AClusterOfItsOwnHasRoomForAllWorkers) {
  train::TrainerOptions options = {.num_workers = 2};
  // Together more than the machine has.
  options.worker_resources.cpu = std::thread::hardware_concurrency();
  LineTrainer trainer(options);
  const auto result = trainer.Train({.epochs = 1});
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST(ReadmeExampleTest, TheReadmesShowTheCodeThatIsTestedHere) {
  for (const char* readme : {"train/README.md", "README.md"}) {
    miniray::ExpectReadmeShows(readme, "tests/train/readme_example.h",
                               /*goes_on=*/true);
  }
}

}  // namespace

int main(int argc, char** argv) {
  miniray::Init(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
