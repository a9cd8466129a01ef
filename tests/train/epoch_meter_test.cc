#include "train/epoch_meter.h"

#include <thread>

#include "gtest/gtest.h"

namespace miniray::train {
namespace {

TEST(EpochMeterTest, MeansAreWeighedBySamples) {
  EpochMeter meter;
  meter.Begin(0);
  meter.Average(3, {{"loss", 1}, {"accuracy", 0.5}});
  meter.Advance(3);
  meter.Average(1, {{"loss", 5}});
  meter.Advance(1);
  EXPECT_EQ(meter.Finish(),
            (Metrics{{"loss", 2}, {"accuracy", 0.5}, {"samples", 4}}));
}

// 7 is no power of two: 7 * 0.1 + 7 * 0.2 + 7 * 0.4 would be rounded.
TEST(EpochMeterTest, EqualBatchesGiveThePlainMeanToTheLastBit) {
  EpochMeter meter;
  meter.Begin(0);
  for (const double loss : {0.1, 0.2, 0.4}) meter.Average(7, {{"loss", loss}});
  EXPECT_EQ(meter.Finish().at("loss"), (0.1 + 0.2 + 0.4) / 3);
}

TEST(EpochMeterTest, EachEpochBeginsAnew) {
  EpochMeter meter;
  meter.Begin(0);
  meter.Average(1, {{"loss", 1}, {"other", 1}});
  meter.Advance(1);
  meter.Finish();
  meter.Begin(1);
  meter.Average(2, {{"loss", 3}});
  meter.Advance(2);
  EXPECT_EQ(meter.Finish(), (Metrics{{"loss", 3}, {"samples", 2}}));
}

TEST(EpochMeterTest, SetReplaces) {
  EpochMeter meter;
  meter.Begin(0);
  meter.Set({{"loss", 1}});
  meter.Set({{"loss", 3}});
  EXPECT_EQ(meter.Now().metrics, (Metrics{{"loss", 3}}));
}

TEST(EpochMeterTest, TellsHowFarTheEpochIs) {
  EpochMeter meter;
  EXPECT_EQ(meter.Now().epoch, -1);
  EXPECT_EQ(meter.Now().seconds, 0);
  meter.Begin(2, 10);
  meter.Average(4, {{"loss", 0.5}});
  meter.Advance(4);
  const Progress progress = meter.Now();
  EXPECT_EQ(progress.epoch, 2);
  EXPECT_EQ(progress.samples_done, 4);
  EXPECT_EQ(progress.samples, 10);
  EXPECT_FALSE(progress.done);
  EXPECT_EQ(progress.metrics, (Metrics{{"loss", 0.5}}));
  EXPECT_GT(progress.seconds, 0);
  EXPECT_EQ(progress.samples_per_second(), 4 / progress.seconds);
  meter.Finish();
  const double seconds = meter.Now().seconds;
  EXPECT_TRUE(meter.Now().done);
  EXPECT_EQ(meter.Now().seconds, seconds);  // The clock has stopped.
}

TEST(EpochMeterTest, MayBeAskedByAnotherThread) {
  EpochMeter meter;
  meter.Begin(0, 1000);
  std::thread trains([&] {
    for (int i = 0; i < 1000; ++i) {
      meter.Average(1, {{"loss", 1}});
      meter.Advance(1);
    }
  });
  int64_t last = 0;
  while (last < 1000) {
    const Progress progress = meter.Now();
    ASSERT_GE(progress.samples_done, last);
    last = progress.samples_done;
  }
  trains.join();
  EXPECT_EQ(meter.Finish().at("loss"), 1);
}

}  // namespace
}  // namespace miniray::train
