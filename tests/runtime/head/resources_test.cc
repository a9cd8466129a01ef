#include "runtime/head/resources.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Resources Proto(const std::map<std::string, double>& quantities) {
  v1::Resources proto;
  for (const auto& [name, quantity] : quantities) {
    (*proto.mutable_quantity())[name] = quantity;
  }
  return proto;
}

ResourceSet Set(const std::map<std::string, double>& quantities) {
  const auto set = ResourceSet::FromProto(Proto(quantities));
  EXPECT_THAT(set, IsOk());
  return set.ok() ? *set : ResourceSet();
}

TEST(ResourcesTest, TenTenthsAreExactlyOne) {
  ResourceSet available = Set({{"CPU", 1}});
  const ResourceSet tenth = Set({{"CPU", 0.1}});
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(available.Covers(tenth)) << i;
    available.Subtract(tenth);
  }
  EXPECT_FALSE(available.Covers(tenth));
  EXPECT_EQ(available.ToProto().quantity().at("CPU"), 0.0);
  for (int i = 0; i < 10; ++i) available.Add(tenth);
  EXPECT_EQ(available.ToProto().quantity().at("CPU"), 1.0);
}

TEST(ResourcesTest, FractionsAreKeptToATenThousandth) {
  EXPECT_EQ(Set({{"GPU", 1.0 / 3}}).ToProto().quantity().at("GPU"), 0.3333);
  EXPECT_EQ(Set({{"GPU", 0.0001}}).ToProto().quantity().at("GPU"), 0.0001);
}

TEST(ResourcesTest, LargeQuantitiesAreExact) {
  constexpr double kMost = 9e14;
  ResourceSet set = Set({{"memory", kMost}});
  EXPECT_EQ(set.ToProto().quantity().at("memory"), kMost);
  const ResourceSet byte = Set({{"memory", 1}});
  set.Subtract(byte);
  EXPECT_EQ(set.ToProto().quantity().at("memory"), kMost - 1);
}

TEST(ResourcesTest, WhatIsNoQuantityIsRefusedByName) {
  for (double bad :
       {-1.0, -1e-9, std::nan(""), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity(), 9.1e14, 1e300}) {
    EXPECT_THAT(ResourceSet::FromProto(Proto({{"CPU", 1}, {"GPU", bad}})),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("GPU"), HasSubstr("0 and 9e14"))))
        << bad;
  }
}

TEST(ResourcesTest, ZeroIsNothing) {
  const ResourceSet none = Set({{"GPU", 0}, {"CPU", -0.0}});
  EXPECT_EQ(none.ToString(), "nothing");
  EXPECT_TRUE(ResourceSet().Covers(none));
  EXPECT_EQ(none.ToProto().quantity_size(), 0);
}

TEST(ResourcesTest, ATinyRequestIsNotRoundedToNothing) {
  // Otherwise any number of actors would fit.
  const ResourceSet tiny = Set({{"CPU", 1e-6}});
  EXPECT_FALSE(ResourceSet().Covers(tiny));
  EXPECT_EQ(tiny.ToString(), "CPU 0.0001");
}

TEST(ResourcesTest, CoversComparesByName) {
  const ResourceSet node = Set({{"CPU", 4}, {"shelf", 1}});
  EXPECT_TRUE(node.Covers(Set({})));
  EXPECT_TRUE(node.Covers(Set({{"CPU", 4}})));
  EXPECT_TRUE(node.Covers(Set({{"CPU", 1}, {"shelf", 1}})));
  EXPECT_FALSE(node.Covers(Set({{"CPU", 4.0001}})));
  EXPECT_FALSE(node.Covers(Set({{"GPU", 0.0001}})));
  EXPECT_FALSE(node.Covers(Set({{"cpu", 1}})));
}

// A node's GPUs.
ResourceSet Devices(double gpus) {
  ResourceSet set = Set({{"GPU", gpus}});
  set.NumberGpus();
  return set;
}

TEST(ResourcesTest, SharesOfAGpuComeFromOneDevice) {
  ResourceSet node = Devices(2);
  EXPECT_THAT(node.Gpus(), ElementsAre(0, 1));
  const ResourceSet a = node.Take(Set({{"GPU", 0.6}}));
  EXPECT_THAT(a.Gpus(), ElementsAre(0));
  const ResourceSet b = node.Take(Set({{"GPU", 0.7}}));
  EXPECT_THAT(b.Gpus(), ElementsAre(1));
  // 0.4 and 0.3 are free.
  EXPECT_FALSE(node.Covers(Set({{"GPU", 0.5}})));
  EXPECT_TRUE(node.CoversSums(Set({{"GPU", 0.5}})));
  EXPECT_TRUE(node.Covers(Set({{"GPU", 0.4}})));
  // The device with the least room for it.
  EXPECT_THAT(node.Take(Set({{"GPU", 0.3}})).Gpus(), ElementsAre(1));
  EXPECT_THAT(node.Take(Set({{"GPU", 0.3}})).Gpus(), ElementsAre(0));
  node.Add(a);
  EXPECT_TRUE(node.Covers(Set({{"GPU", 0.7}})));
  EXPECT_FALSE(node.Covers(Set({{"GPU", 0.8}})));
}

TEST(ResourcesTest, WholeGpusAreWhollyFreeDevices) {
  ResourceSet node = Devices(3);
  const ResourceSet half = node.Take(Set({{"GPU", 0.5}}));
  const ResourceSet whole = node.Take(Set({{"GPU", 1}}));
  EXPECT_THAT(whole.Gpus(), ElementsAre(1));
  EXPECT_FALSE(node.Covers(Set({{"GPU", 2}})));
  EXPECT_TRUE(node.Covers(Set({{"GPU", 1}})));
  node.Add(half);
  EXPECT_THAT(node.Take(Set({{"GPU", 2}})).Gpus(), ElementsAre(0, 2));
  node.Add(whole);
  EXPECT_THAT(node.Take(Set({{"GPU", 1}})).Gpus(), ElementsAre(1));
  EXPECT_FALSE(node.Covers(Set({{"GPU", 0.0001}})));
}

// As a bundle does.
TEST(ResourcesTest, WhatWasTakenCanBeTakenFrom) {
  ResourceSet node = Devices(3);
  const ResourceSet first = node.Take(Set({{"GPU", 1}}));
  ResourceSet bundle = node.Take(Set({{"CPU", 1}, {"GPU", 2}}));
  EXPECT_THAT(bundle.Gpus(), ElementsAre(1, 2));
  const ResourceSet half = bundle.Take(Set({{"GPU", 0.5}}));
  EXPECT_THAT(half.Gpus(), ElementsAre(1));
  EXPECT_THAT(bundle.Take(Set({{"GPU", 1}})).Gpus(), ElementsAre(2));
  bundle.Add(half);
  EXPECT_TRUE(bundle.Covers(Set({{"GPU", 1}})));
  // As it is read from the database.
  const ResourceSet again = Set({{"GPU", 2}}).OnGpus(std::vector<int>{1, 2});
  EXPECT_THAT(again.Gpus(), ElementsAre(1, 2));
  node = Devices(3);
  node.Subtract(again);
  EXPECT_THAT(node.Take(Set({{"GPU", 1}})).Gpus(), ElementsAre(0));
}

TEST(ResourcesTest, MoreThanOneGpuIsAskedForInWholeOnes) {
  EXPECT_THAT(ResourceSet::FromRequest(Proto({{"GPU", 1.5}})),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("GPU = 1.5"), HasSubstr("whole"))));
  for (const double good : {0.0, 0.25, 1.0, 2.0}) {
    EXPECT_THAT(ResourceSet::FromRequest(Proto({{"GPU", good}})), IsOk());
  }
  EXPECT_THAT(ResourceSet::FromRequest(Proto({{"CPU", 1.5}})), IsOk());
  // A node may offer a part of one.
  EXPECT_TRUE(Devices(1.5).Covers(Set({{"GPU", 0.5}})));
  EXPECT_FALSE(Devices(0.5).Covers(Set({{"GPU", 1}})));
}

TEST(ResourcesTest, Utilisation) {
  const ResourceSet total = Set({{"CPU", 4}, {"GPU", 2}});
  const ResourceSet both = Set({{"CPU", 1}, {"GPU", 1}});
  EXPECT_EQ(total.Utilisation(total, both), 0);
  EXPECT_EQ(Set({{"CPU", 3}, {"GPU", 2}}).Utilisation(total, both), 0.25);
  EXPECT_EQ(Set({{"CPU", 3}, {"GPU", 0.5}}).Utilisation(total, both), 0.75);
  // Only what is asked for counts.
  EXPECT_EQ(Set({{"CPU", 3}}).Utilisation(total, Set({{"CPU", 1}})), 0.25);
  EXPECT_EQ(Set({}).Utilisation(total, Set({})), 0);
}

TEST(ResourcesTest, ToStringShowsEveryDigit) {
  EXPECT_EQ(Set({{"GPU", 0.5}, {"CPU", 2}}).ToString(), "CPU 2, GPU 0.5");
  EXPECT_EQ(Set({{"CPU", 0.1}}).ToString(), "CPU 0.1");
  // A request that misses by a byte must not look as if it fit.
  EXPECT_EQ(Set({{"memory", 17179869185.0}}).ToString(), "memory 17179869185");
}

}  // namespace
}  // namespace miniray
