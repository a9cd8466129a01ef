#include "ml/metrics/feature_extractor.h"

#include <memory>
#include <string>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/classify/classifier.h"
#include "ml/classify/classifier_file.h"
#include "tests/ml/data/data_testutil.h"
#include "tests/ml/metrics/metrics_testutil.h"

namespace miniray::ml {
namespace {

using absl::StatusCode::kFailedPrecondition;
using absl::StatusCode::kInvalidArgument;
using absl::StatusCode::kNotFound;
using ::testing::ElementsAre;

constexpr char kMeans[] = "def forward(self, x):\n  return x.mean([2, 3])\n";

// uint8 [2, channels, side, side]: one image of 51, and one of 102.
at::Tensor TwoGreys(int64_t channels, int64_t side) {
  at::Tensor images = at::full({2, channels, side, side}, 51, at::kByte);
  images[1].fill_(102);
  return images;
}

TEST(FeatureExtractorTest, AScriptSeesImagesInItsRangeAndSize) {
  struct Case {
    std::string range;
    double first, second;
  };
  for (const Case& one : {Case{"0..255", 51, 102}, Case{"0..1", 0.2, 0.4},
                          Case{"-1..1", -0.6, -0.2}}) {
    // Fails for images of another size.
    const std::string source =
        "def forward(self, x):\n"
        "  assert x.size(2) == 12 and x.size(3) == 12\n"
        "  return x.mean([2, 3])\n";
    ASSERT_OK_AND_ASSIGN(
        const auto extractor,
        FeatureExtractor::Create(MakeScript(source, 12, one.range)));
    for (const int64_t channels : {1, 3}) {
      for (const int64_t side : {8, 12, 20}) {
        ASSERT_OK_AND_ASSIGN(const at::Tensor features,
                             extractor->Extract(TwoGreys(channels, side)));
        EXPECT_THAT(features.sizes(), ElementsAre(2, 3));
        EXPECT_EQ(features.scalar_type(), at::kFloat);
        for (int channel = 0; channel < 3; ++channel) {
          EXPECT_NEAR(features[0][channel].item<double>(), one.first, 1e-4);
          EXPECT_NEAR(features[1][channel].item<double>(), one.second, 1e-4);
        }
      }
    }
    EXPECT_EQ(extractor->DistanceName(), "FID (inception file script.pt)");
  }
}

TEST(FeatureExtractorTest, AClassifierGivesWhatItsLastLayerSees) {
  ASSERT_OK_AND_ASSIGN(const auto classifier,
                       Classifier::Create({.network = "cnn",
                                           .channels = 1,
                                           .height = 8,
                                           .width = 8,
                                           .hidden = 5,
                                           .classes = 3,
                                           .device = "cpu"}));
  ASSERT_OK_AND_ASSIGN(const std::string bytes,
                       SerializeClassifier({.network = "cnn",
                                            .channels = 1,
                                            .height = 8,
                                            .width = 8,
                                            .hidden = 5,
                                            .classes = 3,
                                            .dataset = "letters",
                                            .weights = classifier->Weights()}));
  ASSERT_OK_AND_ASSIGN(
      const auto extractor,
      FeatureExtractor::Create(
          {.kind = "classifier", .name = "cnn.pt", .bytes = bytes}));
  EXPECT_EQ(extractor->DistanceName(),
            "classifier distance (cnn, trained on letters)");
  ASSERT_OK_AND_ASSIGN(const at::Tensor features,
                       extractor->Extract(TwoGreys(1, 8)));
  ASSERT_OK_AND_ASSIGN(const at::Tensor expected,
                       classifier->Features(TwoGreys(1, 8)));
  EXPECT_TRUE(at::equal(features, expected));
  EXPECT_THAT(features.sizes(), ElementsAre(2, 5));
  ExpectError(extractor->Extract(TwoGreys(3, 8)).status(), kInvalidArgument,
              {"[2, 3, 8, 8]", "takes uint8 [B, 1, 8, 8]"});
}

TEST(FeatureExtractorTest, AScriptThatReturnsSomethingElseIsExplained) {
  ExpectError(
      FeatureExtractor::Create(MakeScript("def forward(self, x):\n"
                                          "  return x.mean([2, 3], True)\n",
                                          8))
          .status(),
      kInvalidArgument,
      {"folder/script.pt", "[2, 3, 1, 1]", "expected floating [2, F]",
       "[2, 3, 8, 8]", "flattened"});
  ExpectError(FeatureExtractor::Create(
                  MakeScript("def forward(self, x):\n  return (x, x)\n", 8))
                  .status(),
              kInvalidArgument, {"type Tuple"});
  ExpectError(
      FeatureExtractor::Create(MakeScript("def forward(self, x):\n"
                                          "  return x.mean([2, 3])[0:1]\n",
                                          8))
          .status(),
      kInvalidArgument, {"[1, 3]"});
  ExpectError(
      FeatureExtractor::Create(MakeScript("def forward(self, x):\n"
                                          "  assert x.size(2) == 299\n"
                                          "  return x.mean([2, 3])\n",
                                          8))
          .status(),
      kInvalidArgument,
      {"folder/script.pt", "fails on float32 [2, 3, 8, 8]", "AssertionError"});
}

TEST(FeatureExtractorTest, RefusesFilesAndSettingsThatCannotBe) {
  ExtractorFile good = MakeScript(kMeans, 8);
  ASSERT_TRUE(FeatureExtractor::Create(good).ok());
  ExtractorFile bad = good;
  bad.bytes = "text";
  ExpectError(FeatureExtractor::Create(bad).status(), kInvalidArgument,
              {"folder/script.pt: not a TorchScript module"});
  bad.bytes = good.bytes.substr(0, good.bytes.size() / 2);
  EXPECT_FALSE(FeatureExtractor::Create(bad).ok());
  bad = good;
  bad.size = 0;
  ExpectError(FeatureExtractor::Create(bad).status(), kInvalidArgument,
              {"0 pixels a side"});
  bad = good;
  bad.range = "0..2";
  ExpectError(FeatureExtractor::Create(bad).status(), kInvalidArgument,
              {"'0..2'", "0..1, -1..1 or 0..255"});
  bad = good;
  bad.kind = "magic";
  ExpectError(FeatureExtractor::Create(bad).status(), kInvalidArgument,
              {"'magic'", "classifier or torchscript"});
  // A script is no classifier.
  bad = good;
  bad.kind = "classifier";
  ExpectError(FeatureExtractor::Create(bad).status(), kInvalidArgument,
              {"not a classifier that `classification` saved"});
  ASSERT_OK_AND_ASSIGN(const auto extractor, FeatureExtractor::Create(good));
  ExpectError(extractor->Extract(at::zeros({2, 2, 8, 8}, at::kByte)).status(),
              kInvalidArgument, {"C = 1 or 3"});
  ExpectError(extractor->Extract(at::zeros({2, 3, 8, 8})).status(),
              kInvalidArgument, {"expected uint8"});
}

TEST(FeatureExtractorTest, FilesAreReadAndToldApart) {
  const std::string folder = MakeTestFolder();
  const std::string path = WriteTestFile(folder, "a.pt", "bytes");
  ASSERT_OK_AND_ASSIGN(ExtractorFile file,
                       ReadExtractorFile("torchscript", path));
  EXPECT_EQ(file.bytes, "bytes");
  EXPECT_EQ(file.name, path);
  EXPECT_EQ(file.size, 299);
  ExpectError(ReadExtractorFile("torchscript", folder).status(),
              kFailedPrecondition, {folder, "not a regular file"});
  ExpectError(ReadExtractorFile("torchscript", folder + "/absent").status(),
              kNotFound, {folder + "/absent"});

  ExtractorFile other = file;
  other.name = "elsewhere";
  EXPECT_EQ(ExtractorIdentity(other), ExtractorIdentity(file));
  other.bytes = "other bytes";
  EXPECT_NE(ExtractorIdentity(other), ExtractorIdentity(file));
  other = file;
  other.size = 100;
  EXPECT_NE(ExtractorIdentity(other), ExtractorIdentity(file));
  other = file;
  other.range = "-1..1";
  EXPECT_NE(ExtractorIdentity(other), ExtractorIdentity(file));
}

}  // namespace
}  // namespace miniray::ml
