#include "ml/metrics/statistics_cache.h"

#include <filesystem>
#include <string>

#include "ATen/ATen.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/ml/data/data_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kDataLoss;
using absl::StatusCode::kNotFound;

FeatureStatistics Some() {
  at::manual_seed(1);
  FeatureStatistics statistics;
  EXPECT_EQ(statistics.Add(at::randn({20, 5})), absl::OkStatus());
  return statistics;
}

TEST(StatisticsCacheTest, KnowsSha256) {
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(Sha256("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(StatisticsCacheTest, ReturnsWhatWasStored) {
  const std::string folder = MakeTestFolder() + "/made/if/need/be";
  ExpectError(LoadStatistics(folder, "one").status(), kNotFound,
              {StatisticsPath(folder, "one")});
  const FeatureStatistics stored = Some();
  ASSERT_EQ(StoreStatistics(folder, "one", stored), absl::OkStatus());
  ASSERT_OK_AND_ASSIGN(const FeatureStatistics loaded,
                       LoadStatistics(folder, "one"));
  EXPECT_EQ(loaded.count, 20);
  EXPECT_TRUE(at::equal(loaded.mean, stored.mean));
  EXPECT_TRUE(at::equal(loaded.scatter, stored.scatter));
  ExpectError(LoadStatistics(folder, "two").status(), kNotFound, {});
  // There is no temporary file left.
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(entry.path(), StatisticsPath(folder, "one"));
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST(StatisticsCacheTest, KeysHaveFilesOfTheirOwn) {
  EXPECT_EQ(StatisticsPath("f", "one"), StatisticsPath("f", "one"));
  EXPECT_NE(StatisticsPath("f", "one"), StatisticsPath("f", "two"));
}

TEST(StatisticsCacheTest, NoticesDamage) {
  const std::string folder = MakeTestFolder();
  ASSERT_EQ(StoreStatistics(folder, "one", Some()), absl::OkStatus());
  const std::string path = StatisticsPath(folder, "one");
  const std::string whole = *ReadFile(path);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] ^= 4;
    ASSERT_EQ(WriteFileAtomically(path, bytes), absl::OkStatus());
    ExpectError(LoadStatistics(folder, "one").status(), kDataLoss, {path});
  }
  for (const size_t size : {size_t{0}, size_t{10}, size_t{60}, size_t{95},
                            size_t{100}, whole.size() - 1}) {
    ASSERT_EQ(WriteFileAtomically(path, whole.substr(0, size)),
              absl::OkStatus());
    ExpectError(LoadStatistics(folder, "one").status(), kDataLoss, {path});
  }
  ASSERT_EQ(WriteFileAtomically(path, whole), absl::OkStatus());
  EXPECT_TRUE(LoadStatistics(folder, "one").ok());
}

TEST(StatisticsCacheTest, NoticesTheFileOfAnotherKey) {
  const std::string folder = MakeTestFolder();
  ASSERT_EQ(StoreStatistics(folder, "one", Some()), absl::OkStatus());
  std::filesystem::rename(StatisticsPath(folder, "one"),
                          StatisticsPath(folder, "two"));
  ExpectError(LoadStatistics(folder, "two").status(), kDataLoss,
              {"of something else: one"});
}

}  // namespace
}  // namespace miniray::ml
