// Both sides of an exchange in one process: WeightView and WeightExchange.

#include "ps/weight_exchange.h"

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/compression/block_codec.h"
#include "ps/compression/difference.h"
#include "ps/tensor_info.h"
#include "ps/tensor_math.h"
#include "ps/weight_view.h"
#include "tests/ps/tensors.h"

namespace miniray::ps {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr CompressionOptions kNone;
constexpr CompressionOptions kFp16{.method = Compression::kFp16};
constexpr CompressionOptions kBf16{.method = Compression::kBf16};
constexpr CompressionOptions kInt8{.method = Compression::kInt8};
constexpr CompressionOptions kTopK{.method = Compression::kTopK,
                                   .top_k_fraction = 0.1};

// A server of averages and its workers, as far as weights are concerned.
class Exchange {
 public:
  Exchange(int64_t num_workers, const CompressionOptions& from,
           const CompressionOptions& to)
      : view_({.from_workers = from, .to_workers = to}),
        workers_(static_cast<size_t>(num_workers)) {}

  // Synchronises the models, but those of the workers left out.
  void Sync(std::vector<NamedTensors>* models, std::vector<size_t> out = {}) {
    std::vector<Contribution> contributions;
    std::vector<int64_t> contributors;
    std::vector<bool> holds(models->size());
    bytes = 0;
    for (size_t i = 0; i < models->size(); ++i) {
      const auto sent = workers_[i].Send(
          view_.RequestTo(static_cast<int64_t>(i)), (*models)[i]);
      ASSERT_TRUE(sent.ok()) << sent.status();
      for (const auto& [name, tensor] : sent->value.tensors) {
        bytes += tensor.nbytes();
      }
      bool held = false;
      auto tensors = view_.ContributionIn(sent->value, weights, &held);
      ASSERT_TRUE(tensors.ok()) << tensors.status();
      holds[i] = held;
      if (std::find(out.begin(), out.end(), i) != out.end()) continue;
      contributors.push_back(static_cast<int64_t>(i));
      contributions.push_back(
          {.worker_id = static_cast<int>(i), .tensors = *std::move(tensors)});
    }
    weights = MeanOfModels(contributions);
    view_.Follow(weights, InfoOf(contributions[0]), contributors,
                 absl::StrCat("version-", ++version_));
    for (size_t i = 0; i < models->size(); ++i) {
      const bool difference = holds[i] && view_.difference().has_value();
      Receive(i, difference ? *view_.difference() : view_.full(), models);
    }
  }

  void Receive(size_t worker, const WeightMessage& message,
               std::vector<NamedTensors>* models) {
    const absl::Status received =
        workers_[worker].Receive(message, [&](const NamedTensors& tensors) {
          (*models)[worker].clear();
          for (const auto& [name, tensor] : tensors) {
            (*models)[worker].emplace_back(name, tensor.clone());
          }
          return absl::OkStatus();
        });
    ASSERT_TRUE(received.ok()) << received;
  }

  NamedTensors weights;
  size_t bytes = 0;  // From the workers, last time.
  WeightView view_;
  std::vector<WeightExchange> workers_;

 private:
  int version_ = 0;
};

std::vector<NamedTensors> Models(const std::vector<std::vector<float>>& w) {
  std::vector<NamedTensors> models;
  for (const auto& values : w) models.push_back({{"w", Floats(values)}});
  return models;
}

TEST(WeightExchangeTest, TheFirstTimeAllWeightsTravelAsTheyAre) {
  for (const CompressionOptions& codec : {kFp16, kInt8, kTopK}) {
    Exchange exchange(2, codec, codec);
    auto models = Models({{0.1f, 2}, {0.3f, 4}});
    exchange.Sync(&models);
    EXPECT_EQ(exchange.bytes, 2 * 2 * 4);
    EXPECT_TRUE(SameBits(models[0][0].second, Floats({0.2f, 3})));
    EXPECT_TRUE(SameBits(models[1][0].second, models[0][0].second));
  }
}

TEST(WeightExchangeTest, ThenOnlyTheDifference) {
  Exchange exchange(2, kInt8, kInt8);
  auto models = Models({{10, 20, 30}, {10, 20, 30}});
  exchange.Sync(&models);
  models[0][0].second.add_(Floats({127, 1.25f, -3.5f}));
  exchange.Sync(&models);
  // A scale and three bytes each.
  EXPECT_EQ(exchange.bytes, 2 * (4 + 3));
  // Worker 0 sent 127, 1 and -4 (to the even one), worker 1 nothing: a mean
  // difference of 63.5, 0.5, -2. Of that in steps of 0.5: all.
  EXPECT_THAT(Values(exchange.weights[0].second), ElementsAre(73.5, 20.5, 28));
  for (const auto& model : models) {
    EXPECT_THAT(Values(model[0].second), ElementsAre(73.5, 20.5, 28));
  }
  // What was lost, 0.25 and 0.5, goes with the next difference, here all of it.
  exchange.Sync(&models);
  EXPECT_NEAR(Values(exchange.weights[0].second)[1], 20.5 + 0.125, 0.002);
  EXPECT_NEAR(Values(exchange.weights[0].second)[2], 28 + 0.25, 0.002);
}

TEST(WeightExchangeTest, WhatTheServerLosesGoesWithTheNext) {
  Exchange exchange(1, kNone, kTopK);  // The largest of these, one.
  auto models = Models({{0, 0, 0}});
  exchange.Sync(&models);
  models = Models({{4, 2, 1}});
  exchange.Sync(&models);
  EXPECT_THAT(Values(exchange.weights[0].second), ElementsAre(4, 2, 1));
  EXPECT_THAT(Values(models[0][0].second), ElementsAre(4, 0, 0));
  exchange.Sync(&models);
  EXPECT_THAT(Values(exchange.weights[0].second), ElementsAre(4, 2, 1));
  EXPECT_THAT(Values(models[0][0].second), ElementsAre(4, 2, 0));
  exchange.Sync(&models);
  EXPECT_THAT(Values(models[0][0].second), ElementsAre(4, 2, 1));
}

TEST(WeightExchangeTest, AWorkerThatIsLeftOutOwesNoMoreThanBefore) {
  Exchange exchange(2, kTopK, kNone);
  auto models = Models({{0, 0}, {0, 0}});
  exchange.Sync(&models);
  models = Models({{0, 0}, {8, 2}});
  exchange.Sync(&models, {1});  // Neither its 8 nor its 2.
  EXPECT_THAT(Values(models[1][0].second), ElementsAre(0, 0));
  exchange.Sync(&models);
  EXPECT_THAT(Values(models[1][0].second), ElementsAre(0, 0));
  models = Models({{0, 0}, {8, 2}});
  exchange.Sync(&models);
  EXPECT_THAT(Values(models[1][0].second), ElementsAre(4, 0));
  exchange.Sync(&models);
  EXPECT_THAT(Values(models[1][0].second), ElementsAre(4, 1));
}

TEST(WeightExchangeTest, AWorkerThatRestartedSendsAndGetsAllOfThem) {
  Exchange exchange(2, kInt8, kInt8);
  auto models = Models({{1, 2}, {3, 4}});
  exchange.Sync(&models);
  exchange.workers_[1] = WeightExchange();
  models[1] = {{"w", Floats({6, 9})}};
  exchange.Sync(&models);
  // 2 * 4 bytes in full, 4 + 2 as a difference; of 2, 3 and 6, 9.
  EXPECT_EQ(exchange.bytes, 8 + 6);
  EXPECT_NEAR(Values(models[1][0].second)[1], 6, 0.02);
  EXPECT_TRUE(SameBits(models[0][0].second, models[1][0].second));
  // A difference to what it had before is of no use to it.
  models[0][0].second.add_(1);
  exchange.Sync(&models);
  const WeightMessage difference = *exchange.view_.difference();
  WeightExchange restarted;
  EXPECT_THAT(restarted
                  .Receive(difference,
                           [](const NamedTensors&) { return absl::OkStatus(); })
                  .ToString(),
              HasSubstr("FAILED_PRECONDITION"));
}

TEST(WeightExchangeTest, WhatComesTwiceIsTakenTwice) {
  Exchange exchange(1, kInt8, kInt8);
  auto models = Models({{1, 2}});
  exchange.Sync(&models);
  models[0][0].second.mul_(1.7f);
  exchange.Sync(&models);
  const at::Tensor after = models[0][0].second.clone();
  ASSERT_TRUE(exchange.view_.difference().has_value());
  exchange.Receive(0, *exchange.view_.difference(), &models);
  EXPECT_TRUE(SameBits(models[0][0].second, after));
  exchange.Receive(0, exchange.view_.full(), &models);
  EXPECT_TRUE(SameBits(models[0][0].second, after));
}

// A server that was killed between two parts sends all of it when it is back.
TEST(WeightExchangeTest, WhatBeganInPartsMayComeAsAWhole) {
  WeightExchange worker;
  int sets = 0;
  at::Tensor last;
  const auto receive = [&](WeightMessage message) {
    message.id = "next";
    return worker.Receive(message, [&](const NamedTensors& weights) {
      ++sets;
      last = weights[0].second.clone();
      return absl::OkStatus();
    });
  };
  const at::Tensor w = at::arange(8192).to(at::kFloat);
  const auto part = [&](int64_t index) {
    return WeightMessage{
        .part = index,
        .num_parts = 2,
        .tensors = {{"w", w.slice(0, 4096 * index, 4096 * (index + 1))}},
        .parts = {{.begin = 4096 * index, .shape = {8192}}}};
  };
  ASSERT_TRUE(receive(part(0)).ok());
  EXPECT_EQ(sets, 0);
  ASSERT_TRUE(receive({.tensors = {{"w", w}}}).ok());
  EXPECT_EQ(sets, 1);
  EXPECT_TRUE(SameBits(last, w));
  // The rest, if it comes late, makes no model.
  ASSERT_TRUE(receive(part(1)).ok());
  EXPECT_EQ(sets, 1);
}

// The server has to see that, and a difference to the new ones would be wrong.
TEST(WeightExchangeTest, WhoCouldNotTakeThemGoesOnFromTheOldOnes) {
  WeightExchange worker;
  const NamedTensors w = {{"w", Floats({1, 2})}};
  const auto receive = [&](const std::string& id, const absl::Status& set) {
    return worker.Receive({.id = id, .tensors = w},
                          [&](const NamedTensors&) { return set; });
  };
  const auto base = [&] {
    const auto sent = worker.Send({}, w);
    EXPECT_TRUE(sent.ok()) << sent.status();
    return sent->value.base;
  };
  ASSERT_TRUE(receive("first", absl::OkStatus()).ok());
  EXPECT_EQ(base(), "first");
  EXPECT_THAT(receive("second", absl::InternalError("no room")).ToString(),
              HasSubstr("no room"));
  EXPECT_EQ(base(), "first");
  ASSERT_TRUE(receive("second", absl::OkStatus()).ok());
  EXPECT_EQ(base(), "second");
}

// The cut is found once for models like the base; it is that of the model and
// the number of parts at hand all the same.
TEST(WeightExchangeTest, EachRequestGetsItsPartOfItsCut) {
  WeightExchange worker;
  const auto begins = [&](const NamedTensors& model, int64_t num_parts) {
    std::vector<int64_t> all;
    for (int64_t part = 0; part < num_parts; ++part) {
      const auto sent =
          worker.Send({.part = part, .num_parts = num_parts}, model);
      EXPECT_TRUE(sent.ok()) << sent.status();
      if (!sent.ok()) continue;
      const WeightMessage& message = sent->value;
      EXPECT_EQ(message.parts.size(), 1);
      all.push_back(message.parts[0].begin);
      const int64_t size = message.tensors[0].second.numel();
      EXPECT_TRUE(
          SameBits(message.tensors[0].second,
                   model[0].second.slice(0, all.back(), all.back() + size)));
    }
    return all;
  };
  const auto receive = [&](const NamedTensors& model, const std::string& id) {
    return worker.Receive({.id = id, .tensors = model},
                          [](const NamedTensors&) { return absl::OkStatus(); });
  };
  const NamedTensors small = {{"w", at::arange(8192).to(at::kFloat)}};
  const NamedTensors large = {{"w", at::arange(24576).to(at::kFloat)}};
  EXPECT_THAT(begins(small, 2), ElementsAre(0, 4096)) << "without a base";
  ASSERT_TRUE(receive(small, "first").ok());
  EXPECT_THAT(begins(small, 2), ElementsAre(0, 4096));
  EXPECT_THAT(begins(large, 2), ElementsAre(0, 12288)) << "not like the base";
  EXPECT_THAT(begins(small, 2), ElementsAre(0, 4096));
  ASSERT_TRUE(receive(large, "second").ok());
  EXPECT_THAT(begins(large, 2), ElementsAre(0, 12288)) << "another base";
  EXPECT_THAT(begins(large, 3), ElementsAre(0, 8192, 16384));
  EXPECT_THAT(begins(large, 2), ElementsAre(0, 12288));
}

TEST(WeightExchangeTest, BuffersAndOtherTypesTravelAsTheyAre) {
  Exchange exchange(2, kInt8, kInt8);
  std::vector<NamedTensors> models;
  for (int i = 0; i < 2; ++i) {
    models.push_back({{"w", Floats({1, 2})},
                      {"bn.running_var", Floats({0.1f + i, 1e-6f})},
                      {"bn.num_batches_tracked", Ints({i})},
                      {"half", Floats({0.5}).to(at::kHalf)},
                      {"double", Doubles({0.1})}});
  }
  exchange.Sync(&models);
  models[0][1].second = Floats({1000.1f, 1e-6f});
  models[1][4].second = Doubles({0.1 + 0x1p-40});
  exchange.Sync(&models);
  EXPECT_EQ(exchange.bytes, 2 * ((4 + 2) + 8 + 8 + 2 + 8));
  EXPECT_EQ(Values(models[1][1].second)[1], 1e-6f);
  EXPECT_EQ(Values(models[1][4].second)[0], 0.1 + 0x1p-41);
  EXPECT_EQ(Values(models[0][2].second)[0], 1);
}

TEST(WeightExchangeTest, LargeWeightsDoNotOverflow) {
  // Four workers at 60000, in a format that ends at 65504.
  Exchange exchange(4, kFp16, kFp16);
  auto models = Models({{0}, {0}, {0}, {0}});
  exchange.Sync(&models);
  models = Models({{60000}, {60000}, {60000}, {60000}});
  exchange.Sync(&models);
  EXPECT_THAT(Values(models[3][0].second), ElementsAre(60000));
  // And what is beyond comes with the next synchronisations.
  for (auto& model : models) model[0].second.add_(100000);
  for (int i = 0; i < 4; ++i) exchange.Sync(&models);
  EXPECT_THAT(Values(models[3][0].second), ElementsAre(160000));
}

TEST(WeightExchangeTest, WhatIsNotFiniteReachesTheServerAndIsForgotten) {
  for (const CompressionOptions& codec : {kFp16, kBf16, kInt8, kTopK}) {
    Exchange exchange(1, codec, kNone);
    auto models = Models({{1, 2}});
    exchange.Sync(&models);
    models[0][0].second[1] = std::numeric_limits<float>::infinity();
    exchange.Sync(&models);
    EXPECT_FALSE(std::isfinite(Values(exchange.weights[0].second)[1]));
    // From weights that are finite it goes on.
    exchange.weights = {{"w", Floats({1, 2})}};
    exchange.view_.Replace(exchange.weights, std::vector<TensorInfo>(1), "new");
    exchange.Receive(0, exchange.view_.full(), &models);
    exchange.Sync(&models);
    EXPECT_THAT(Values(exchange.weights[0].second), ElementsAre(1, 2));
  }
}

TEST(WeightExchangeTest, MalformedMessagesAreErrors) {
  Exchange exchange(1, kTopK, kInt8);
  auto models = Models({{1, 2, 3}});
  exchange.Sync(&models);
  models[0][0].second.add_(1);
  exchange.Sync(&models);
  const auto ignore = [](const NamedTensors&) { return absl::OkStatus(); };
  WeightMessage good = *exchange.view_.difference();
  good.base = good.id;  // As if it were the next.
  good.id = "next";
  for (int mistake = 0; mistake < 6; ++mistake) {
    WeightMessage bad = good;
    at::Tensor& bytes = bad.tensors[0].second;
    if (mistake == 0) bytes = bytes.slice(0, 1);
    if (mistake == 1) bytes = bytes.view({1, -1});
    if (mistake == 2) bad.tensors[0].first = "v";
    if (mistake == 3) bad.tensors.clear();
    if (mistake == 4) bad.part = 1;
    if (mistake == 5) bad.compression.method = static_cast<Compression>(9);
    EXPECT_EQ(exchange.workers_[0].Receive(bad, ignore).code(),
              absl::StatusCode::kInvalidArgument)
        << mistake;
  }
  EXPECT_TRUE(exchange.workers_[0].Receive(good, ignore).ok());
  EXPECT_EQ(exchange.workers_[0]
                .Send({.part = 2, .num_parts = 2}, models[0])
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

// A difference that is encoded in one piece or in two, cut at the grid, has the
// same bytes: shards may do it.
TEST(DifferenceTest, CutsDoNotMatter) {
  const NamedTensors from = {{"w", at::zeros({10'000})}};
  const NamedTensors to = {{"w", at::arange(10'000).remainder(137).sin()}};
  for (const CompressionOptions& codec : {kFp16, kBf16, kInt8, kTopK}) {
    const Difference whole =
        EncodeDifference({.compression = codec, .to = &to, .from = &from});
    size_t at = 0;
    for (const auto& [begin, end] :
         {std::pair(0, 4096), std::pair(4096, 10'000)}) {
      const NamedTensors part_from = {
          {"w", from[0].second.slice(0, begin, end)}};
      const NamedTensors part_to = {{"w", to[0].second.slice(0, begin, end)}};
      const Difference part = EncodeDifference(
          {.compression = codec, .to = &part_to, .from = &part_from});
      const at::Tensor& bytes = part.encoded[0].second;
      EXPECT_TRUE(
          SameBits(bytes, whole.encoded[0].second.slice(
                              0, static_cast<int64_t>(at),
                              static_cast<int64_t>(at + bytes.nbytes()))));
      at += bytes.nbytes();
    }
    EXPECT_EQ(at, whole.encoded[0].second.nbytes());
  }
}

// Logistic regression on points of two overlapping classes in 40 dimensions,
// 200 of them on each of four workers, which take 5 steps of SGD between two
// synchronisations. Returns the loss over all points in the end.
double TrainedLoss(const CompressionOptions& from,
                   const CompressionOptions& to) {
  constexpr int kWorkers = 4, kPoints = 200, kDimensions = 40;
  constexpr double kRate = 0.2;
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  struct Point {
    std::vector<float> x;
    float label;  // 0 or 1.
  };
  std::vector<std::vector<Point>> points(kWorkers);
  for (auto& of_worker : points) {
    for (int i = 0; i < kPoints; ++i) {
      Point point{std::vector<float>(kDimensions), static_cast<float>(i % 2)};
      for (int d = 0; d < kDimensions; ++d) {
        point.x[d] = normal(random) +
                     (point.label - 0.5f) * 0.5f * static_cast<float>(d % 3);
      }
      of_worker.push_back(std::move(point));
    }
  }
  const auto probability = [](const float* w, const Point& point) {
    double sum = 0;
    for (int d = 0; d < kDimensions; ++d) sum += w[d] * point.x[d];
    return 1 / (1 + std::exp(-sum));
  };
  Exchange exchange(kWorkers, from, to);
  std::vector<NamedTensors> models;
  for (int k = 0; k < kWorkers; ++k) {
    models.push_back({{"w", at::zeros({kDimensions})}});
  }
  for (int sync = 0; sync < 60; ++sync) {
    for (size_t k = 0; k < kWorkers; ++k) {
      float* const w = models[k][0].second.data_ptr<float>();
      for (int step = 0; step < 5; ++step) {
        std::vector<double> gradient(kDimensions);
        for (int i = 0; i < 20; ++i) {
          const Point& point = points[k][random() % kPoints];
          const double error = probability(w, point) - point.label;
          for (int d = 0; d < kDimensions; ++d) {
            gradient[d] += error * point.x[d] / 20;
          }
        }
        for (int d = 0; d < kDimensions; ++d) {
          w[d] -= static_cast<float>(kRate * gradient[d]);
        }
      }
    }
    exchange.Sync(&models);
  }
  double loss = 0;
  const float* const w = models[0][0].second.data_ptr<float>();
  for (const auto& of_worker : points) {
    for (const Point& point : of_worker) {
      const double p = probability(w, point);
      loss -= std::log(point.label > 0 ? p : 1 - p);
    }
  }
  return loss / (kWorkers * kPoints);
}

TEST(ConvergenceTest, TheLossIsThatOfUncompressedWeights) {
  const double uncompressed = TrainedLoss(kNone, kNone);
  EXPECT_LT(uncompressed, 0.5 * std::log(2));  // It has learned.
  for (const CompressionOptions& codec : {kFp16, kBf16, kInt8}) {
    for (const auto& [from, to] :
         {std::pair(codec, kNone), std::pair(kNone, codec),
          std::pair(codec, codec)}) {
      const double loss = TrainedLoss(from, to);
      EXPECT_NEAR(loss, uncompressed, 0.01 * uncompressed)
          << ToString(from) << " and " << ToString(to);
      RecordProperty(absl::StrCat(ToString(from), "_", ToString(to)),
                     absl::StrCat(loss / uncompressed));
    }
  }
}

// With error feedback a tenth of the values does, too, if less exactly; without
// it the smaller coordinates would never move.
TEST(ConvergenceTest, TopKComesClose) {
  const double uncompressed = TrainedLoss(kNone, kNone);
  const double top_k = TrainedLoss(kTopK, kNone);
  EXPECT_NEAR(top_k, uncompressed, 0.1 * uncompressed);
  RecordProperty("top_k", absl::StrCat(top_k / uncompressed));
}

}  // namespace
}  // namespace miniray::ps
