// Gradients that are compressed on their way, in this process: the worker's
// side, and the server that undoes it.

#include "ps/gradient_encoder.h"

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/arange.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/compression/block_codec.h"
#include "ps/gradient_server.h"
#include "runtime/base/status_macros.h"
#include "tests/ps/strategy_testutil.h"

namespace miniray::ps {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const CompressionOptions kNone;
const CompressionOptions kFp16 = {.method = Compression::kFp16};
const CompressionOptions kBf16 = {.method = Compression::kBf16};
const CompressionOptions kInt8 = {.method = Compression::kInt8};
const CompressionOptions kHalf = {.method = Compression::kTopK,
                                  .top_k_fraction = 0.5};

// A server on which each gradient is a step, and its workers.
class Training {
 public:
  Training(const ServerOptions& options, const NamedTensors& start,
           int num_workers = 1, const StrategyOptions& sgd = {{"lr", 1.0}})
      : optimizer_(Create("sgd", sgd)),
        server_(dynamic_cast<GradientStrategy*>(optimizer_.get()),
                {.name = "sgd", .text = "sgd"}, options) {
    EXPECT_TRUE(Validate(options).ok()) << Validate(options);
    EXPECT_TRUE(server_.Start(start, std::nullopt).ok());
    for (int worker = 0; worker < num_workers; ++worker) {
      encoders_.emplace_back(worker);
      const absl::Status set =
          encoders_.back().SetModel(start, {server_.Pull()->terms});
      EXPECT_TRUE(set.ok()) << set;
      sequences_.push_back(0);
    }
  }

  // As GradientClient does it.
  absl::StatusOr<PushReply> Push(const NamedTensors& gradients,
                                 int worker = 0) {
    const size_t i = static_cast<size_t>(worker);
    MR_ASSIGN_OR_RETURN(std::vector<GradientPush> pushes,
                        encoders_[i].Encode(gradients, sequences_[i] + 1, {0}));
    pushes[0].version = server_.Snapshot()->version;
    MR_ASSIGN_OR_RETURN(PushReply reply, server_.Push(std::move(pushes[0])));
    encoders_[i].Settle(0, reply.accepted || reply.repeated);
    ++sequences_[i];
    return reply;
  }

  NamedTensors weights() const { return server_.Snapshot()->weights; }
  GradientServer& server() { return server_; }
  GradientEncoder& encoder() { return encoders_[0]; }

 private:
  std::unique_ptr<SyncStrategy> optimizer_;
  GradientServer server_;
  std::vector<GradientEncoder> encoders_;
  std::vector<int64_t> sequences_;
};

ServerOptions Compressed(const CompressionOptions& compression) {
  return {.from_workers = compression, .mode = SyncMode::kAsynchronous};
}

NamedTensors One(const at::Tensor& tensor) { return {{"w", tensor}}; }

at::Tensor Range(int64_t size) { return at::arange(size).to(at::kFloat); }

TEST(GradientEncoderTest, WhatIsLostOfOneGradientGoesWithTheNext) {
  constexpr int64_t kSize = 5000;  // A block and a shorter one.
  Training training(Compressed(kHalf), One(at::zeros({kSize})));
  ASSERT_TRUE(training.Push(One(Range(kSize).sub(100))).ok());
  // Of 0 ... 4095, less 100, the upper half is larger by magnitude.
  std::vector<double> weights = Values(training.weights()[0].second);
  EXPECT_EQ(weights[4000], -3900);
  EXPECT_EQ(weights[1000], 0);
  // The other half comes without a gradient, exactly.
  ASSERT_TRUE(training.Push(One(at::zeros({kSize}))).ok());
  EXPECT_TRUE(SameBits(training.weights()[0].second,
                       at::zeros({kSize}).sub(Range(kSize).sub(100))));
  const GradientStats stats = training.server().GetStats();
  EXPECT_EQ(stats.bytes, 2 * 6 * kSize / 2);
  EXPECT_EQ(stats.bytes_saved, 2 * 4 * kSize - stats.bytes);
}

TEST(GradientEncoderTest, RoundingAddsUpToOneStepAtMost) {
  constexpr int kPushes = 200;
  const at::Tensor gradient = Range(300).mul(0.37).sin().to(at::kFloat);
  for (const CompressionOptions& codec : {kFp16, kBf16, kInt8}) {
    Training training(Compressed(codec), One(at::zeros({300})));
    for (int i = 0; i < kPushes; ++i) {
      ASSERT_TRUE(training.Push(One(gradient)).ok());
    }
    // One int8 step of values up to 1, and some for the sums in float.
    const double error = training.weights()[0]
                             .second.add(gradient.mul(kPushes))
                             .abs()
                             .max()
                             .item<double>();
    EXPECT_LT(error, 1.1 / 127) << ToString(codec);
  }
}

TEST(GradientEncoderTest, UntilItIsSettledAGradientIsTheSameBytes) {
  Training training(Compressed(kInt8), One(at::zeros({1000})));
  GradientEncoder& encoder = training.encoder();
  const at::Tensor first = Range(1000).sin(), other = Range(1000).cos();
  const auto bytes = [&](const at::Tensor& gradient, int64_t sequence) {
    const auto pushes = encoder.Encode(One(gradient), sequence, {0});
    EXPECT_TRUE(pushes.ok()) << pushes.status();
    EXPECT_EQ(pushes->front().id.sequence, sequence);
    return pushes->front().gradients[0].second.clone();
  };
  const at::Tensor sent = bytes(first, 1);
  EXPECT_EQ(sent.numel(), EncodedBytes(kInt8, 1000));
  EXPECT_TRUE(SameBits(bytes(other, 1), sent));
  // It was not used: nothing of it goes with the next.
  encoder.Settle(0, /*used=*/false);
  EXPECT_TRUE(SameBits(bytes(first, 2), sent));
  encoder.Settle(0, /*used=*/true);
  // Now what was lost does.
  const at::Tensor next = bytes(first, 3);
  EXPECT_FALSE(SameBits(next, sent));
}

TEST(GradientEncoderTest, BuffersAndOtherTypesTravelAsTheyAre) {
  const NamedTensors start = {{"w", Floats({0, 0, 0})},
                              {"wide", Doubles({0, 0})},
                              {"bn.running_mean", Floats({0, 0})},
                              {"count", Ints({3})}};
  Training training(Compressed(kInt8), start);
  NamedTensors gradients = {{"w", Floats({127, 1, 0})},
                            {"wide", Doubles({1.0 / 3, 1e-9})},
                            {"bn.running_mean", Floats({1.0f / 3, 1e-9f})},
                            {"count", Ints({4})}};
  ASSERT_TRUE(training.Push(gradients).ok());
  const NamedTensors weights = training.weights();
  EXPECT_THAT(Values(weights[0].second), ElementsAre(-127, -1, 0));
  EXPECT_THAT(Values(weights[1].second), ElementsAre(-1.0 / 3, -1e-9));
  EXPECT_TRUE(SameBits(weights[2].second, gradients[2].second));
  EXPECT_THAT(Values(weights[3].second), ElementsAre(4));
  EXPECT_EQ(training.server().GetStats().bytes, 3 + 4 + 16 + 8 + 8);
  // Buffers may be missing.
  gradients.erase(gradients.begin() + 2);
  ASSERT_TRUE(training.Push(gradients).ok());
  EXPECT_TRUE(SameBits(training.weights()[2].second, weights[2].second));
}

TEST(GradientEncoderTest, WhatIsNotFiniteIsSeenBeforeItIsCompressed) {
  NamedTensors bad =
      One(Floats({1, 2, std::numeric_limits<float>::infinity()}));
  Training strict(Compressed(kInt8), One(at::zeros({3})));
  EXPECT_THAT(strict.Push(bad).status().ToString(),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("worker 0: 'w'"),
                    HasSubstr("flat index 2")));
  EXPECT_THAT(strict.Push(One(at::zeros({4}))).status().ToString(),
              HasSubstr("'w' is Float [4], expected Float [3]"));
  ServerOptions options = Compressed(kInt8);
  options.non_finite = NonFinitePolicy::kDropWorker;
  Training lenient(options, One(at::zeros({3})));
  const auto reply = lenient.Push(bad);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_FALSE(reply->accepted);
  EXPECT_THAT(Values(lenient.weights()[0].second), Each(0));
  EXPECT_EQ(lenient.server().GetStats().refused, 1);
}

TEST(GradientEncoderTest, MalformedBytesAreErrorsThatNameTheWorker) {
  Training training(Compressed(kInt8), One(at::zeros({3})));
  const auto error = [&](const NamedTensors& gradients,
                         const CompressionOptions& compression) {
    return training.server()
        .Push(GradientPush{.id = {.worker = 4, .sequence = 1},
                           .version = 1,
                           .compression = compression,
                           .gradients = gradients})
        .status()
        .ToString();
  };
  const at::Tensor two = Make<uint8_t>(at::kByte, {1, 2});
  EXPECT_THAT(error(One(two), kInt8),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("worker 4"),
                    HasSubstr("'w' has 2 bytes, and int8 makes 7")));
  EXPECT_THAT(error({{"v", two}}, kInt8),
              AllOf(HasSubstr("worker 4"), HasSubstr("has 'v', which")));
  EXPECT_THAT(
      error(One(two), {.method = Compression::kTopK, .top_k_fraction = 2}),
      AllOf(HasSubstr("worker 4"), HasSubstr("top_k_fraction")));
  EXPECT_THAT(error(One(two), kNone), HasSubstr("'w' is Byte [2], expected"));
  EXPECT_THAT(Values(training.weights()[0].second), Each(0));
}

// Logistic regression on points of two overlapping classes in 40 dimensions,
// 200 of them on each of four workers, whose gradients over 20 points are steps
// one after the other. Returns the loss over all points in the end.
double TrainedLoss(const CompressionOptions& codec, double momentum) {
  constexpr int kWorkers = 4, kPoints = 200, kDimensions = 40;
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
  const auto probability = [](const NamedTensors& weights, const Point& point) {
    const float* const w = weights[0].second.data_ptr<float>();
    double sum = 0;
    for (int d = 0; d < kDimensions; ++d) sum += w[d] * point.x[d];
    return 1 / (1 + std::exp(-sum));
  };
  Training training(Compressed(codec), One(at::zeros({kDimensions})), kWorkers,
                    {{"lr", 0.2 * (1 - momentum)}, {"momentum", momentum}});
  for (int step = 0; step < 1200; ++step) {
    const int worker = step % kWorkers;
    const NamedTensors weights = training.weights();
    std::vector<float> gradient(kDimensions);
    for (int i = 0; i < 20; ++i) {
      const Point& point = points[worker][random() % kPoints];
      const double error = probability(weights, point) - point.label;
      for (int d = 0; d < kDimensions; ++d) {
        gradient[d] += static_cast<float>(error * point.x[d] / 20);
      }
    }
    EXPECT_TRUE(training.Push(One(Floats(gradient)), worker).ok());
  }
  double loss = 0;
  for (const auto& of_worker : points) {
    for (const Point& point : of_worker) {
      const double p = probability(training.weights(), point);
      loss -= std::log(point.label > 0 ? p : 1 - p);
    }
  }
  return loss / (kWorkers * kPoints);
}

TEST(ConvergenceTest, TheLossIsThatOfUncompressedGradients) {
  for (const double momentum : {0.0, 0.9}) {
    const double uncompressed = TrainedLoss(kNone, momentum);
    EXPECT_LT(uncompressed, 0.5 * std::log(2));  // It has learned.
    for (const CompressionOptions& codec : {kFp16, kBf16, kInt8}) {
      const double loss = TrainedLoss(codec, momentum);
      EXPECT_NEAR(loss, uncompressed, 0.01 * uncompressed) << ToString(codec);
      RecordProperty(absl::StrCat(ToString(codec), "_", momentum),
                     absl::StrCat(loss / uncompressed));
    }
    // The largest tenth: four values of forty.
    const double sparse = TrainedLoss(
        {.method = Compression::kTopK, .top_k_fraction = 0.1}, momentum);
    EXPECT_NEAR(sparse, uncompressed, 0.05 * uncompressed);
    RecordProperty(absl::StrCat("top_k_", momentum),
                   absl::StrCat(sparse / uncompressed));
  }
}

}  // namespace
}  // namespace miniray::ps
