#include "ps/strategy_registry.h"

#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/strategies/momentum.h"

namespace miniray::ps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

// Returns its options' text as the name of a tensor, to look inside.
class EchoStrategy : public SyncStrategy {
 public:
  static std::vector<OptionSpec> Options() {
    return {{.name = "level",
             .default_value = int64_t{3},
             .help = "how far",
             .min = 1},
            {.name = "cap", .default_value = 0.0, .help = "at most", .max = 2},
            {.name = "kind", .default_value = "soft", .help = "which way"},
            {.name = "fast", .default_value = false, .help = "in a hurry"}};
  }
  explicit EchoStrategy(const OptionMap& options) : text_(options.ToString()) {}
  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution>) override {
    return NamedTensors{{text_, at::Tensor()}};
  }

 private:
  const std::string text_;
};
MINIRAY_SYNC_STRATEGY("echo", EchoStrategy);
// As when a header stands in two files.
MINIRAY_SYNC_STRATEGY("echo", EchoStrategy);

// Passes options on, and takes "low" below "high" only.
class WrapperStrategy : public EchoStrategy {
 public:
  static std::vector<OptionSpec> Options() {
    return {{.name = "low",
             .default_value = 0.5,
             .help = "the lower one",
             .min = 0,
             .min_allowed = false},
            {.name = "high",
             .default_value = 1.0,
             .help = "the higher one",
             .min = 0,
             .max = 2,
             .min_allowed = false},
            {.name = "inner.", .default_value = "", .help = "of another"}};
  }
  static absl::Status CheckOptions(const OptionMap& options) {
    if (*options.GetDouble("low", 0) < *options.GetDouble("high", 0)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError("low must be below high");
  }
  using EchoStrategy::EchoStrategy;
};
MINIRAY_SYNC_STRATEGY("wrapper", WrapperStrategy);

class PlainStrategy : public SyncStrategy {
 public:
  absl::StatusOr<NamedTensors> Aggregate(
      absl::Span<const Contribution>) override {
    return NamedTensors();
  }
};
MINIRAY_SYNC_STRATEGY("plain", PlainStrategy);
MINIRAY_SYNC_STRATEGY("claimed_twice", PlainStrategy);
MINIRAY_SYNC_STRATEGY("claimed_twice", EchoStrategy);

class ThrowingStrategy : public PlainStrategy {
 public:
  ThrowingStrategy() { throw std::runtime_error("no luck today"); }
};
MINIRAY_SYNC_STRATEGY("throwing", ThrowingStrategy);

class MistakenStrategy : public PlainStrategy {
 public:
  bool TakesGradients() const override { return true; }
};
MINIRAY_SYNC_STRATEGY("mistaken", MistakenStrategy);

std::string Echo(const StrategyOptions& options,
                 absl::string_view name = "echo") {
  auto strategy = StrategyRegistry::Get().Create(name, options);
  if (!strategy.ok()) return std::string(strategy.status().message());
  return (**strategy).Aggregate({})->front().first;
}

TEST(StrategyRegistryTest, HasTheStrategiesThatComeWithTheServer) {
  EXPECT_THAT(
      StrategyRegistry::Get().Names(),
      IsSupersetOf({"average", "weighted", "momentum", "echo", "plain"}));
}

TEST(StrategyRegistryTest, FillsInDefaults) {
  EXPECT_EQ(Echo({}), "cap=0, fast=false, kind=\"soft\", level=3");
  EXPECT_EQ(Echo({{"level", 7}, {"kind", "hard"}}),
            "cap=0, fast=false, kind=\"hard\", level=7");
}

TEST(StrategyRegistryTest, AnIntegerServesAsNumberButNotTheOtherWayRound) {
  EXPECT_EQ(Echo({{"cap", 1}}), "cap=1, fast=false, kind=\"soft\", level=3");
  EXPECT_THAT(
      Echo({{"level", 2.5}}),
      HasSubstr("option 'level' must be of type integer, got the number 2.5"));
}

TEST(StrategyRegistryTest, AnUnknownStrategyListsThoseThatThereAre) {
  const absl::Status status =
      StrategyRegistry::Get().Create("avrage", {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("'avrage'"), HasSubstr("average"),
                    HasSubstr("momentum"), HasSubstr("weighted")));
}

TEST(StrategyRegistryTest, AnUnknownOptionListsThoseThatThereAre) {
  EXPECT_EQ(Echo({{"lvl", 1}}),
            "unknown option 'lvl'; strategy 'echo' takes: level (integer of at "
            "least 1, default 3): how far; cap (number of at most 2, default "
            "0): at most; kind (string, default \"soft\"): which way; fast "
            "(bool, default false): in a hurry");
  EXPECT_EQ(StrategyRegistry::Get()
                .Create("average", {{"momentum", 0.9}})
                .status()
                .message(),
            "unknown option 'momentum'; strategy 'average' takes no options");
}

TEST(StrategyRegistryTest, ChecksBoundsAndTypes) {
  EXPECT_THAT(Echo({{"level", 0}}), HasSubstr("of at least 1, got 0"));
  EXPECT_THAT(Echo({{"cap", 2.5}}), HasSubstr("of at most 2, got 2.5"));
  EXPECT_THAT(Echo({{"cap", -INFINITY}}), HasSubstr("finite, got -inf"));
  EXPECT_THAT(Echo({{"cap", NAN}}), HasSubstr("finite, got nan"));
  EXPECT_THAT(Echo({{"kind", true}}),
              HasSubstr("of type string, got the bool true"));
  EXPECT_THAT(Echo({{"fast", 1}}),
              HasSubstr("of type bool, got the integer 1"));
}

TEST(StrategyRegistryTest, BoundsMayBeOpenBelow) {
  EXPECT_THAT(Echo({{"low", 0}}, "wrapper"), HasSubstr("above 0, got 0"));
  EXPECT_THAT(Echo({{"high", 0.0}}, "wrapper"), HasSubstr("in (0, 2], got 0"));
  EXPECT_EQ(Echo({{"high", 2}}, "wrapper"), "high=2, low=0.5");
}

TEST(StrategyRegistryTest, AClassMayCheckItsOptionsTogether) {
  EXPECT_EQ(Echo({{"low", 1.5}}, "wrapper"), "low must be below high");
}

TEST(StrategyRegistryTest, OptionsWithAPrefixArePassedOn) {
  EXPECT_EQ(Echo({{"inner.a", 1}, {"inner.b", "x"}}, "wrapper"),
            "high=1, inner.a=1, inner.b=\"x\", low=0.5");
  EXPECT_THAT(Echo({{"inne", 1}}, "wrapper"),
              HasSubstr("unknown option 'inne'; strategy 'wrapper' takes: low "
                        "(number above 0, default 0.5): the lower one; high "
                        "(number in (0, 2], default 1): the higher one; "
                        "inner.NAME: of another"));
}

TEST(StrategyRegistryTest, MomentumIsInZeroToOneWithoutOne) {
  for (const OptionValue& bad :
       {OptionValue(1.7), OptionValue(1.0), OptionValue(int64_t{1}),
        OptionValue(-0.1), OptionValue(true), OptionValue("0.9")}) {
    StrategyOptions options;
    options.Set("momentum", bad);
    const absl::Status status =
        StrategyRegistry::Get().Create("momentum", options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
        << OptionText(bad);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("momentum (number in [0, 1), default 0.9)"))
        << OptionText(bad);
  }
  EXPECT_TRUE(
      StrategyRegistry::Get().Create("momentum", {{"momentum", 0}}).ok());
  EXPECT_TRUE(StrategyRegistry::Get().Create("momentum", {}).ok());
}

TEST(StrategyRegistryTest, TwoClassesUnderOneNameAreAnError) {
  const absl::Status status =
      StrategyRegistry::Get().Create("claimed_twice", {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("PlainStrategy"), HasSubstr("EchoStrategy")));
}

TEST(StrategyRegistryTest, AClassThatCannotBeMadeIsAnError) {
  EXPECT_EQ(StrategyRegistry::Get().Create("throwing", {}).status(),
            absl::InternalError(
                "strategy 'throwing' threw as it was made: no luck today"));
  const absl::Status mistaken =
      StrategyRegistry::Get().Create("mistaken", {}).status();
  EXPECT_EQ(mistaken.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(mistaken.message()),
              AllOf(HasSubstr("MistakenStrategy"),
                    HasSubstr("does not derive from ps::GradientStrategy")));
}

// Another shared object may have another one of that name.
TEST(StrategyRegistryTest, AClassInAnUnnamedNamespaceIsThatOfItsFile) {
  StrategyRegistry registry;
  const auto name_in = [](const void* code) {
    return internal::StrategyClassName(typeid(PlainStrategy), code);
  };
  const std::string ours = name_in(reinterpret_cast<const void*>(
      &internal::RegisterStrategy<PlainStrategy>));
  const std::string theirs =
      name_in(reinterpret_cast<const void*>(&std::abort));
  EXPECT_THAT(ours, HasSubstr("PlainStrategy in "));
  EXPECT_NE(ours, theirs);
  EXPECT_EQ(internal::StrategyClassName(typeid(MomentumStrategy), nullptr),
            "miniray::ps::MomentumStrategy");
  registry.Register("plain", {.class_name = ours});
  registry.Register("plain", {.class_name = theirs});
  EXPECT_EQ(registry.Create("plain", {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(StrategyRegistryTest, EveryStrategyIsAnInstanceOfItsOwn) {
  auto a = StrategyRegistry::Get().Create("momentum", {});
  auto b = StrategyRegistry::Get().Create("momentum", {});
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(a->get(), b->get());
  EXPECT_NE(dynamic_cast<MomentumStrategy*>(a->get()), nullptr);
}

}  // namespace
}  // namespace miniray::ps
