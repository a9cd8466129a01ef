#include "ml/gan/training_run.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace miniray::ml {
namespace {

using ::testing::HasSubstr;

TrainingRunOptions RunWith(double ema_decay, int epochs) {
  return {.worker = {.batch_size = 128, .ema_decay = ema_decay},
          .epochs = epochs};
}

// Expected values: python3, decay ** steps and 0.01 ** (1 / steps).
TEST(AverageWarningTest, SaysWhatIsLeftAndWhatWouldDo) {
  // 1000 images are 7 batches: 0.999^14 = 0.986, 0.01^(1/14) = 0.7197.
  EXPECT_EQ(
      AverageWarning(RunWith(0.999, 2), 1000),
      "Warning: the generator's average will still be 99% initial weights "
      "after 14 steps; take a smaller --ema-decay, such as 0.72");
  // 10 epochs of Fashion-MNIST are 4680 steps, which are enough: 0.0093.
  EXPECT_EQ(AverageWarning(RunWith(0.999, 10), 60000), "");
  // Never 1, however long the run: 0.626, 0.01^(1/4680) = 0.999016.
  EXPECT_THAT(AverageWarning(RunWith(0.9999, 10), 60000),
              HasSubstr("63% initial weights after 4680 steps; take a smaller "
                        "--ema-decay, such as 0.99902"));
  // No average, and one that is the last generator nearly at once.
  EXPECT_EQ(AverageWarning(RunWith(0, 1), 2), "");
  EXPECT_EQ(AverageWarning(RunWith(0.5, 1), 1000), "");
}

TEST(AverageWarningTest, CountsStepsNotBatches) {
  // 7 batches, two at a time and the last alone: 4 steps an epoch. 0.8^8 =
  // 0.168.
  TrainingRunOptions run = RunWith(0.8, 2);
  run.worker.loop.accumulate = 2;
  EXPECT_THAT(AverageWarning(run, 1000),
              HasSubstr("17% initial weights after 8 steps; take a smaller "
                        "--ema-decay, such as 0.56"));
  run.worker.loop.accumulate = 1;  // 0.8^14 = 0.044.
  EXPECT_EQ(AverageWarning(run, 1000), "");
  // Fewer images than a batch are one batch: 0.8 is left, and 0.01 proposed.
  EXPECT_THAT(AverageWarning(RunWith(0.8, 1), 100),
              HasSubstr("80% initial weights after 1 step; take a smaller "
                        "--ema-decay, such as 0.01"));
}

}  // namespace
}  // namespace miniray::ml
