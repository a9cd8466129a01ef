// The distance of a small generator's images from made-up ones, in this process
// and by real worker processes.

#include "ml/metrics/fid_run.h"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "ATen/ATen.h"
#include "ATen/Parallel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/data/dataset_loader.h"
#include "ml/data/synthetic.h"
#include "ml/gan/image_generator.h"
#include "ml/image/grid.h"
#include "ml/metrics/fid_worker.h"
#include "runtime/base/files.h"
#include "tests/ml/data/data_testutil.h"
#include "tests/ml/gan/gan_testutil.h"
#include "tests/ml/metrics/metrics_testutil.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kFailedPrecondition;
using absl::StatusCode::kInvalidArgument;
using ::testing::HasSubstr;
using ::testing::Not;

// Data sets of the small generator's shape, also in actor processes, which are
// this program.
const DatasetRegistrar kTiny("tiny", [](const DatasetOptions& options,
                                        Split split) {
  return MakeSyntheticDataset(
      {.count = 90, .channels = 1, .height = 8, .width = 8}, split,
      options.selection);
});

// Two black images, and two of 100.
const DatasetRegistrar kGreys(
    "greys",
    [](const DatasetOptions& options,
       Split split) -> absl::StatusOr<ImageDataset> {
      ImageDataset data;
      data.images = at::zeros({4, 1, 8, 8}, at::kByte);
      data.images.slice(0, 2, 4).fill_(100);
      data.labels = at::zeros({4}, at::kLong);
      data.class_names = {"grey"};
      return data;
    });

// The means of four quarters of an image: [N, 4].
constexpr char kQuarters[] =
    "def forward(self, x):\n"
    "  return x[:, 0].reshape([-1, 2, 4, 2, 4]).mean([2, 4]).flatten(1)\n";

class FidRunTest : public ::testing::Test {
 protected:
  FidRunTest() {
    // As in workers, so that images are the same.
    at::set_num_threads(1);
  }

  FidRunOptions Options() const {
    return {.data = {.dataset = "tiny"},
            .extractor = MakeScript(kQuarters, 8),
            .count = 700,
            .seed = 3};
  }

  absl::StatusOr<FidResult> Run(const FidRunOptions& options) {
    const std::string path = folder_ + "/text";
    std::FILE* const text = std::fopen(path.c_str(), "w");
    ProgressBar bar({.text = text, .draw = false});
    absl::StatusOr<FidResult> result = RunFid(SmallGenerator(), options, &bar);
    std::fclose(text);
    text_ = *ReadFile(path);
    return result;
  }

  const std::string folder_ = MakeTestFolder();
  std::string text_;  // What the last run has printed.
};

TEST_F(FidRunTest, IsWhatOneWorksOut) {
  FidRunOptions options = Options();
  options.data.dataset = "greys";
  options.extractor = MakeScript(kMeanPixel, 8);
  options.count = 100;
  ASSERT_OK_AND_ASSIGN(const FidResult result, Run(options));
  EXPECT_EQ(result.name, "FID (inception file script.pt)");
  EXPECT_EQ(result.real_images, 4);
  EXPECT_EQ(result.generated_images, 100);
  EXPECT_EQ(result.features, 1);
  EXPECT_FALSE(result.from_cache);

  // Of one feature, the distance is (m1 - m2)^2 + (s1 - s2)^2 with the means
  // and the unbiased standard deviations. Here 0, 0, 100 and 100: 50 and the
  // root of 10000 / 3.
  const auto generator = *ImageGenerator::Create(SmallGenerator());
  const at::Tensor means =
      ToUint8(generator->Generate(3, 0, 100)).to(at::kDouble).mean({1, 2, 3});
  const double m = means.mean().item<double>() - 50;
  const double s = means.std().item<double>() - std::sqrt(10000.0 / 3);
  EXPECT_NEAR(result.distance, m * m + s * s, 1e-3);
}

TEST_F(FidRunTest, WorkersComeToTheSame) {
  FidRunOptions options = Options();
  ASSERT_OK_AND_ASSIGN(const FidResult alone, Run(options));
  EXPECT_GT(alone.distance, 1);
  EXPECT_EQ(alone.features, 4);
  TestCluster cluster;
  for (const int workers : {1, 3}) {
    options.cluster = cluster.Connect();
    options.workers = workers;
    ASSERT_OK_AND_ASSIGN(const FidResult result, Run(options));
    EXPECT_EQ(result.real_images, 90);
    EXPECT_EQ(result.generated_images, 700);
    EXPECT_NEAR(result.distance, alone.distance, 1e-6 * alone.distance);
  }
}

TEST_F(FidRunTest, StatisticsOfRealImagesAreKept) {
  FidRunOptions options = Options();
  options.cache_dir = folder_ + "/cache";
  ASSERT_OK_AND_ASSIGN(const FidResult first, Run(options));
  EXPECT_FALSE(first.from_cache);
  ASSERT_OK_AND_ASSIGN(const FidResult second, Run(options));
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(second.real_images, 90);
  EXPECT_EQ(second.distance, first.distance);
  EXPECT_THAT(text_, HasSubstr("Real images: 90, from " + options.cache_dir));

  // Damaged, they are computed anew.
  std::string path;
  for (const auto& entry :
       std::filesystem::directory_iterator(options.cache_dir)) {
    path = entry.path();
  }
  std::string bytes = *ReadFile(path);
  bytes[bytes.size() / 2] ^= 1;
  ASSERT_EQ(WriteFileAtomically(path, bytes), absl::OkStatus());
  ASSERT_OK_AND_ASSIGN(const FidResult third, Run(options));
  EXPECT_FALSE(third.from_cache);
  EXPECT_EQ(third.distance, first.distance);
  EXPECT_THAT(text_,
              HasSubstr("Warning: statistics of an earlier run: " + path));
  ASSERT_OK_AND_ASSIGN(const FidResult fourth, Run(options));
  EXPECT_TRUE(fourth.from_cache);

  // Another part of the data, or another extractor, is something else.
  options.data.limit = 50;
  ASSERT_OK_AND_ASSIGN(const FidResult part, Run(options));
  EXPECT_FALSE(part.from_cache);
  EXPECT_EQ(part.real_images, 50);
  options.data.limit = 0;
  options.extractor.range = "0..1";
  ASSERT_OK_AND_ASSIGN(const FidResult scaled, Run(options));
  EXPECT_FALSE(scaled.from_cache);
}

TEST_F(FidRunTest, KeptStatisticsAreOfTheSameShape) {
  FidRunOptions options = Options();
  options.cache_dir = folder_ + "/cache";
  ASSERT_TRUE(Run(options).ok());
  // The extractor would bring any images to its size.
  GanOptions large = SmallGanOptions();
  large.shape = {1, 16, 16};
  const GanModel model = {
      .network = GanNetwork::kGenerator,
      .latent_dim = large.latent_dim,
      .shape = large.shape,
      .weights = (*Gan::Create(large))->NetworkWeights(GanNetwork::kGenerator)};
  ProgressBar bar({.draw = false});
  ExpectError(RunFid(model, options, &bar).status(), kInvalidArgument,
              {"tiny are 1x8x8", "the generator 1x16x16"});
}

TEST_F(FidRunTest, AFolderThatCannotBeWrittenIsNoError) {
  FidRunOptions options = Options();
  options.cache_dir = WriteTestFile(folder_, "file", "x") + "/cache";
  EXPECT_TRUE(Run(options).ok());
  EXPECT_THAT(text_, HasSubstr("Warning: "));
}

TEST_F(FidRunTest, FewImagesAreWarnedOf) {
  FidRunOptions options = Options();
  EXPECT_TRUE(Run(options).ok());
  EXPECT_THAT(text_, Not(HasSubstr("Warning")));
  options.count = 4;
  EXPECT_TRUE(Run(options).ok());
  EXPECT_THAT(text_, HasSubstr("Warning: 4 images for 4 features"));
}

TEST_F(FidRunTest, ErrorsSayWhatIsWrong) {
  FidRunOptions options = Options();
  options.count = 1;
  ExpectError(Run(options).status(), kInvalidArgument, {"2 or more"});
  options = Options();
  options.data.dataset = "synthetic";  // 3 x 32 x 32.
  ExpectError(Run(options).status(), kInvalidArgument,
              {"3x32x32", "the generator 1x8x8"});
  options.data.dataset = "absent";
  ExpectError(Run(options).status(), kInvalidArgument, {"'absent'"});
  options = Options();
  options.extractor.bytes = "text";
  ExpectError(Run(options).status(), kInvalidArgument,
              {"not a TorchScript module"});
  options = Options();
  options.data.limit = 1;
  ExpectError(Run(options).status(), kInvalidArgument,
              {"real images", "at least two"});
}

TEST(FidWorkerTest, NeedsExtractorAndGenerator) {
  FidWorker worker;
  ExpectError(worker.RealStatistics({.dataset = "tiny"}, 0, 1).status(),
              kFailedPrecondition, {"LoadExtractor and LoadGenerator"});
  ASSERT_EQ(worker.LoadExtractor(MakeScript(kQuarters, 8)), absl::OkStatus());
  ExpectError(worker.GeneratedStatistics(1, 0, 5).status(), kFailedPrecondition,
              {"LoadGenerator"});
  ExpectError(worker.LoadGenerator("text", "g.pt"), kInvalidArgument, {"g.pt"});
  ASSERT_EQ(worker.LoadGenerator(*SerializeGanModel(SmallGenerator()), "g.pt"),
            absl::OkStatus());
  ASSERT_OK_AND_ASSIGN(const FeatureStatistics statistics,
                       worker.GeneratedStatistics(1, 0, 100));
  EXPECT_EQ(statistics.count, 100);
  EXPECT_EQ(statistics.num_features(), 4);
  ExpectError(worker.GeneratedStatistics(1, 0, 0).status(), kInvalidArgument,
              {"at least 1 image"});
}

TEST(DataIdentityTest, ChangesWithTheFiles) {
  const std::string folder = MakeTestFolder();
  WriteTestFile(folder, "a", "1");
  const FidData data = {.dataset = "tiny", .data_dir = folder};
  const std::string first = DataIdentity(data);
  EXPECT_EQ(DataIdentity(data), first);
  WriteTestFile(folder, "b", "1");
  const std::string second = DataIdentity(data);
  EXPECT_NE(second, first);
  WriteTestFile(folder, "b", "12");
  EXPECT_NE(DataIdentity(data), second);
  FidData other = data;
  other.split = "test";
  EXPECT_NE(DataIdentity(other), DataIdentity(data));
  // One that is not there, as on a machine that does not read it.
  EXPECT_NE(DataIdentity({.data_dir = folder + "/absent"}), "");
}

}  // namespace
}  // namespace miniray::ml

TEST_CLUSTER_MAIN()
