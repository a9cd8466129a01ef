// The distance of a small generator's images from made-up ones, in this process
// and by real worker processes.

#include "ml/metrics/fid_run.h"

#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "ATen/ATen.h"
#include "ATen/Parallel.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/classify/classifier.h"
#include "ml/classify/classifier_file.h"
#include "ml/data/dataset_loader.h"
#include "ml/gan/image_generator.h"
#include "ml/image/grid.h"
#include "ml/image/png.h"
#include "ml/metrics/fid_worker.h"
#include "runtime/base/files.h"
#include "tests/ml/cli/text_bar.h"
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

// Data sets of the small generator's shape.
const DatasetRegistrar kTiny("tiny", &MakeTinyDataset);

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

// As "tiny", but nothing is read before there is a file "go" in data_dir, where
// each process that would read leaves a file with its number meanwhile.
const DatasetRegistrar kGated(
    "gated",
    [](const DatasetOptions& options,
       Split split) -> absl::StatusOr<ImageDataset> {
      const absl::Status begun = WriteFileAtomically(
          absl::StrCat(options.data_dir, "/", getpid(), ".pid"), "");
      if (!begun.ok()) return begun;
      const std::string go = options.data_dir + "/go";
      if (!Eventually([&] { return std::filesystem::exists(go); },
                      absl::Seconds(60))) {
        return absl::DeadlineExceededError("nobody says go");
      }
      return MakeTinyDataset(options, split);
    });

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
    TextBar bar;
    absl::StatusOr<FidResult> result =
        RunFid(SmallGenerator(), options, bar.get());
    text_ = bar.text();
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

TEST_F(FidRunTest, TheWorkOfADeadWorkerGoesToTheOthers) {
  FidRunOptions options = Options();
  ASSERT_OK_AND_ASSIGN(const FidResult alone, Run(options));
  TestCluster cluster;
  options.data = {.dataset = "gated", .data_dir = MakeTestFolder()};
  options.cluster = cluster.Connect();
  options.workers = 2;
  int killed = 0;
  std::thread killer([&killed, &folder = options.data.data_dir] {
    // Once it reads, a worker has a part of the real images.
    int pid = 0;
    EXPECT_TRUE(Eventually(
        [&] {
          for (const auto& entry :
               std::filesystem::directory_iterator(folder)) {
            const std::filesystem::path& path = entry.path();
            if (path.extension() == ".pid" &&
                absl::SimpleAtoi(path.stem().string(), &pid)) {
              return true;
            }
          }
          return false;
        },
        absl::Seconds(60)));
    if (pid > 0 && kill(pid, SIGKILL) == 0) ++killed;
    WriteTestFile(folder, "go", "");
  });
  const absl::StatusOr<FidResult> result = Run(options);
  killer.join();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(killed, 1);
  EXPECT_EQ(result->real_images, 90);
  EXPECT_EQ(result->generated_images, 700);
  EXPECT_NEAR(result->distance, alone.distance, 1e-6 * alone.distance);
}

TEST_F(FidRunTest, PicturesOfAFolderAreComparedWhereTheyLie) {
  // 200 pictures, of each shade from 0 to 199 one.
  const std::string root = MakeTestFolder();
  for (const char* name : {"even", "odd"}) {
    std::filesystem::create_directories(root + "/train/" + name);
  }
  for (int shade = 0; shade < 200; ++shade) {
    ASSERT_EQ(
        WritePng(absl::StrCat(root, "/train/",
                              shade % 2 == 0 ? "even/" : "odd/", shade, ".png"),
                 at::full({1, 8, 8}, shade, at::kByte)),
        absl::OkStatus());
  }
  FidRunOptions options = Options();
  options.data = {.dataset = "image-folder",
                  .data_dir = root,
                  .image_size = 8,
                  .image_channels = 1};
  options.extractor = MakeScript(kMeanPixel, 8);
  options.count = 100;
  ASSERT_OK_AND_ASSIGN(const FidResult alone, Run(options));
  EXPECT_EQ(alone.real_images, 200);
  // As in IsWhatOneWorksOut. The mean of 0 to n - 1 is (n - 1) / 2, the
  // unbiased variance n (n + 1) / 12: 99.5, and 200 * 201 / 12 = 3350.
  const auto generator = *ImageGenerator::Create(SmallGenerator());
  const at::Tensor means =
      ToUint8(generator->Generate(3, 0, 100)).to(at::kDouble).mean({1, 2, 3});
  const double m = means.mean().item<double>() - 99.5;
  const double s = means.std().item<double>() - std::sqrt(3350.0);
  EXPECT_NEAR(alone.distance, m * m + s * s, 1e-3);

  // In three parts of 66 or 67, dealt to two workers.
  TestCluster cluster;
  options.cluster = cluster.Connect();
  options.workers = 2;
  ASSERT_OK_AND_ASSIGN(const FidResult together, Run(options));
  EXPECT_EQ(together.real_images, 200);
  EXPECT_NEAR(together.distance, alone.distance, 1e-6 * alone.distance);

  // A file that cannot be read is an error, here as there.
  const std::string bad =
      WriteTestFile(root + "/train/even", "4.png", "no PNG");
  ExpectError(Run(options).status(), absl::StatusCode::kDataLoss,
              {"worker ", "'image-folder'", bad});
  options.cluster.reset();
  ExpectError(Run(options).status(), absl::StatusCode::kDataLoss,
              {"'image-folder'", bad});
  options.data.image_size = 16;
  ExpectError(Run(options).status(), kInvalidArgument,
              {"image-folder are 1x16x16", "the generator 1x8x8"});
  options.data.data_dir = root + "/absent";
  ExpectError(Run(options).status(), absl::StatusCode::kNotFound,
              {"'image-folder'", root + "/absent"});
}

TEST_F(FidRunTest, DataThatCannotBeListedAreNotKept) {
  FidRunOptions options = Options();
  options.cache_dir = folder_ + "/cache";
  // A link to itself, which even root cannot follow. "tiny" does not look at
  // it.
  options.data.data_dir = folder_ + "/loop";
  std::filesystem::create_symlink("loop", options.data.data_dir);
  for (int run = 0; run < 2; ++run) {
    ASSERT_OK_AND_ASSIGN(const FidResult result, Run(options));
    EXPECT_FALSE(result.from_cache);
    EXPECT_EQ(result.real_images, 90);
    EXPECT_THAT(text_,
                HasSubstr("Warning: statistics of the real images cannot "
                          "be kept: cannot list " +
                          options.data.data_dir));
  }
  EXPECT_FALSE(std::filesystem::exists(options.cache_dir));
}

TEST_F(FidRunTest, DataOfNoFolderAreNotKept) {
  FidRunOptions options = Options();
  options.cache_dir = folder_ + "/cache";
  for (int run = 0; run < 2; ++run) {
    ASSERT_OK_AND_ASSIGN(const FidResult result, Run(options));
    EXPECT_FALSE(result.from_cache);
    EXPECT_THAT(text_, HasSubstr("cannot be kept: data set 'tiny' has no "
                                 "data_dir"));
  }
}

TEST_F(FidRunTest, StatisticsOfRealImagesAreKept) {
  FidRunOptions options = Options();
  options.data.data_dir = folder_;  // "tiny" does not look at it.
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
  options.data.data_dir = folder_;
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
  // A classifier of images of another size.
  options = Options();
  ASSERT_OK_AND_ASSIGN(const auto classifier,
                       Classifier::Create({.network = "cnn",
                                           .channels = 3,
                                           .height = 12,
                                           .width = 12,
                                           .device = "cpu"}));
  ASSERT_OK_AND_ASSIGN(options.extractor.bytes,
                       SerializeClassifier({.network = "cnn",
                                            .channels = 3,
                                            .height = 12,
                                            .width = 12,
                                            .hidden = 64,
                                            .classes = 10,
                                            .dataset = "letters",
                                            .weights = classifier->Weights()}));
  options.extractor.kind = "classifier";
  options.extractor.name = "folder/cnn.pt";
  options.data.dataset = "absent";  // It is not looked for.
  ExpectError(Run(options).status(), kInvalidArgument,
              {"folder/cnn.pt: images of the generator", "[2, 1, 8, 8]",
               "takes uint8 [B, 3, 12, 12]"});
  TestCluster cluster;
  options = Options();
  options.cluster = cluster.Connect();
  options.workers = 0;
  ExpectError(Run(options).status(), kInvalidArgument,
              {"0 workers on a cluster"});
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

std::string IdentityOf(const FidData& data) {
  const absl::StatusOr<std::string> identity = DataIdentity(data);
  EXPECT_TRUE(identity.ok()) << identity.status();
  return identity.value_or("");
}

TEST(DataIdentityTest, ChangesWithTheFiles) {
  const std::string folder = MakeTestFolder();
  WriteTestFile(folder, "a", "1");
  const FidData data = {.dataset = "tiny", .data_dir = folder};
  const std::string first = IdentityOf(data);
  EXPECT_EQ(IdentityOf(data), first);
  WriteTestFile(folder, "b", "1");
  const std::string second = IdentityOf(data);
  EXPECT_NE(second, first);
  WriteTestFile(folder, "b", "12");
  const std::string third = IdentityOf(data);
  EXPECT_NE(third, second);
  // The cache itself may lie there.
  WriteTestFile(folder, "real-0123.stats", "1");
  EXPECT_EQ(IdentityOf(data), third);
  FidData other = data;
  other.split = "test";
  EXPECT_NE(IdentityOf(other), third);
  // Fashion-MNIST is where its package puts it; made-up images have no files.
  EXPECT_NE(IdentityOf({.dataset = "fashion-mnist"}),
            IdentityOf({.dataset = "synthetic"}));
  EXPECT_EQ(DataIdentity({.dataset = "tiny"}).status().code(),
            kFailedPrecondition);
  // One that is not there, as on a machine that does not read it.
  EXPECT_NE(IdentityOf({.data_dir = folder + "/absent"}), "");
  // One file, such as an archive.
  const FidData archive = {.data_dir = folder + "/a"};
  const std::string before = IdentityOf(archive);
  EXPECT_EQ(IdentityOf(archive), before);
  WriteTestFile(folder, "a", "12");
  EXPECT_NE(IdentityOf(archive), before);
}

TEST(DataIdentityTest, AFolderThatMayNotBeReadHidesNoOther) {
  // Whichever is listed first: there is one such folder among eight others.
  const std::string folder = MakeTestFolder();
  const std::string closed = folder + "/closed";
  std::filesystem::create_directories(closed);
  for (int i = 0; i < 8; ++i) {
    std::filesystem::create_directories(absl::StrCat(folder, "/", i));
  }
  std::filesystem::permissions(closed, std::filesystem::perms::none);
  const FidData data = {.dataset = "tiny", .data_dir = folder};
  std::set<std::string> identities = {IdentityOf(data)};
  for (int i = 0; i < 8; ++i) {
    WriteTestFile(absl::StrCat(folder, "/", i), "file", "1");
    EXPECT_TRUE(identities.insert(IdentityOf(data)).second) << i;
  }
  std::filesystem::permissions(closed, std::filesystem::perms::owner_all);
}

TEST(DataIdentityTest, ErrorsAreNotTakenForTheEnd) {
  const std::string loop = MakeTestFolder() + "/loop";
  std::filesystem::create_symlink("loop", loop);
  ExpectError(DataIdentity({.data_dir = loop}).status(), kFailedPrecondition,
              {"cannot list " + loop});
}

TEST(FidWorkerTest, CountsWhatMayBeDealtInSmallParts) {
  FidWorker worker;
  const std::string folder = MakeTestFolder();
  ASSERT_OK_AND_ASSIGN(
      const int64_t made,
      worker.CountUnpacked({.dataset = "tiny", .data_dir = folder}));
  EXPECT_EQ(made, 0);
  // Three pictures, of which none is opened.
  for (const char* name : {"a.png", "b.jpg", "c.png"}) {
    WriteTestFile(folder, name, "");
  }
  FidData data = {.dataset = "image-folder", .data_dir = folder};
  ASSERT_OK_AND_ASSIGN(const int64_t pictures, worker.CountUnpacked(data));
  EXPECT_EQ(pictures, 3);
  data.limit = 2;
  ASSERT_OK_AND_ASSIGN(const int64_t fewer, worker.CountUnpacked(data));
  EXPECT_EQ(fewer, 2);

  // Two records of 1 + 3072 bytes.
  WriteTestFile(folder, "test_batch.bin", std::string(2 * 3073, '\0'));
  data = {.dataset = "cifar10", .data_dir = folder, .split = "test"};
  ASSERT_OK_AND_ASSIGN(const int64_t records, worker.CountUnpacked(data));
  EXPECT_EQ(records, 2);
  data.limit = 1;
  ASSERT_OK_AND_ASSIGN(const int64_t one, worker.CountUnpacked(data));
  EXPECT_EQ(one, 1);
  data.split = "train";
  ExpectError(worker.CountUnpacked(data).status(), absl::StatusCode::kNotFound,
              {"data set 'cifar10'", "data_batch_1.bin"});
}

}  // namespace
}  // namespace miniray::ml

TEST_CLUSTER_MAIN()
