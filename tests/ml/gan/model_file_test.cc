#include "ml/gan/model_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/ml/gan/gan_testutil.h"

namespace miniray::ml {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string TempPath(const std::string& name) {
  return ::testing::TempDir() + "/" + name;
}

absl::StatusOr<GanModel> ParseGenerator(const std::string& bytes) {
  return ParseGanModel(bytes, GanNetwork::kGenerator, "g.pt");
}

// What a user should see for a file that is not a model.
void ExpectOneClearLine(const absl::Status& status) {
  EXPECT_FALSE(status.ok());
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("g.pt: not a generator that `train` saved"));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
}

TEST(ModelFileTest, RoundTrips) {
  for (const GanNetwork network : kGanNetworks) {
    auto gan = *Gan::Create(SmallGanOptions());
    gan->BeginEpoch(0);
    EXPECT_EQ(gan->TrainStep(SmallImages(8, 1)), absl::OkStatus());
    const GanModel model = {.network = network,
                            .latent_dim = 16,
                            .shape = kSmallShape,
                            .weights = gan->NetworkWeights(network)};
    const std::string path = TempPath("round_trip.pt");
    ASSERT_EQ(SaveGanModel(path, model), absl::OkStatus());
    const absl::StatusOr<GanModel> loaded = LoadGanModel(path, network);
    ASSERT_EQ(loaded.status(), absl::OkStatus());
    EXPECT_EQ(loaded->network, network);
    EXPECT_EQ(loaded->latent_dim, 16);
    EXPECT_EQ(loaded->shape, kSmallShape);
    EXPECT_TRUE(Equal(loaded->weights, model.weights));
  }
}

TEST(ModelFileTest, RoundTripsAConditionalDcgan) {
  for (const GanNetwork network : kGanNetworks) {
    GanOptions options = SmallGanOptions();
    options.architecture = GanArchitecture::kDcgan;
    options.shape = {3, 16, 16};
    options.classes = 3;
    auto gan = *Gan::Create(options);
    const GanModel model = {.network = network,
                            .latent_dim = options.latent_dim,
                            .shape = options.shape,
                            .architecture = options.architecture,
                            .classes = 3,
                            .class_names = {"cat", "grey wolf", "7"},
                            .weights = gan->NetworkWeights(network)};
    const absl::StatusOr<std::string> bytes = SerializeGanModel(model);
    ASSERT_EQ(bytes.status(), absl::OkStatus());
    const absl::StatusOr<GanModel> loaded =
        ParseGanModel(*bytes, network, "g.pt");
    ASSERT_EQ(loaded.status(), absl::OkStatus());
    EXPECT_EQ(loaded->sizes(), options.sizes());
    EXPECT_EQ(loaded->class_names, model.class_names);
    EXPECT_TRUE(Equal(loaded->weights, model.weights));
  }
}

TEST(ModelFileTest, ClassesAreFoundByNameAndByNumber) {
  GanModel model = {.classes = 3, .class_names = {"cat", "grey wolf", "0"}};
  EXPECT_EQ(*FindClass(model, "cat"), 0);
  EXPECT_EQ(*FindClass(model, "grey wolf"), 1);
  EXPECT_EQ(*FindClass(model, "1"), 1);
  EXPECT_EQ(*FindClass(model, "2"), 2);
  // A name comes before a number.
  EXPECT_EQ(*FindClass(model, "0"), 2);
  for (const char* name : {"dog", "3", "-1", "Cat", "1.0", ""}) {
    const absl::Status status = FindClass(model, name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("expected 0 to 2 or one of cat, grey wolf, 0"));
  }
  model.class_names.clear();
  EXPECT_EQ(*FindClass(model, "0"), 0);
  EXPECT_THAT(std::string(FindClass(model, "cat").status().message()),
              HasSubstr("'cat'; expected 0 to 2"));
  const absl::Status none = FindClass(SmallGenerator(), "0").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(none.message()), HasSubstr("--conditional"));
}

TEST(ModelFileTest, ManyClassesDoNotFillTheScreen) {
  GanModel model = {.classes = 1000};
  for (int i = 0; i < 1000; ++i) {
    model.class_names.push_back("class " + std::to_string(i));
  }
  const std::string message(FindClass(model, "cat").status().message());
  EXPECT_THAT(message, HasSubstr("class 18, class 19, ..."));
  EXPECT_LT(message.size(), 400);
}

TEST(ModelFileTest, SameModelGivesTheSameBytes) {
  EXPECT_EQ(*SerializeGanModel(SmallGenerator()),
            *SerializeGanModel(SmallGenerator()));
}

TEST(ModelFileTest, RefusesTruncatedFiles) {
  const std::string bytes = *SerializeGanModel(SmallGenerator());
  for (size_t size = 0; size < bytes.size(); size += bytes.size() / 97) {
    ExpectOneClearLine(ParseGenerator(bytes.substr(0, size)).status());
  }
  ExpectOneClearLine(
      ParseGenerator(bytes.substr(0, bytes.size() - 1)).status());
}

TEST(ModelFileTest, FlippedBitsAreErrorsOrHarmless) {
  const GanModel model = SmallGenerator();
  const std::string bytes = *SerializeGanModel(model);
  int errors = 0;
  const auto flip = [&](size_t at) {
    std::string bad = bytes;
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    const absl::StatusOr<GanModel> parsed = ParseGenerator(bad);
    if (parsed.ok()) {
      EXPECT_TRUE(Equal(parsed->weights, model.weights)) << "byte " << at;
    } else {
      ++errors;
    }
  };
  // The headers in front and the directory at the end byte by byte, where each
  // plays a part of its own; between them, some of the weights.
  const size_t dense = 4096;
  ASSERT_GT(bytes.size(), 3 * dense);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == dense) i = bytes.size() - dense;
    if (i < dense ? i % 7 == 0 : i % 3 == 0) flip(i);
  }
  const size_t step = (bytes.size() - 2 * dense) / 53;
  for (size_t i = dense; i < bytes.size() - dense; i += step) flip(i);
  EXPECT_GT(errors, 1000);
}

TEST(ModelFileTest, RefusesGarbage) {
  for (const std::string& bytes :
       {std::string(), std::string("PK\x03\x04"), std::string("hello\n"),
        std::string(100000, '\0'), std::string(100000, '\xff'),
        std::string("\x89PNG\r\n\x1a\n")}) {
    ExpectOneClearLine(ParseGenerator(bytes).status());
  }
}

TEST(ModelFileTest, RefusesTheOtherNetwork) {
  auto gan = *Gan::Create(SmallGanOptions());
  const std::string bytes = *SerializeGanModel(
      {.network = GanNetwork::kDiscriminator,
       .latent_dim = 16,
       .shape = kSmallShape,
       .weights = gan->NetworkWeights(GanNetwork::kDiscriminator)});
  const absl::Status status = ParseGenerator(bytes).status();
  ExpectOneClearLine(status);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("holds 'miniray.gan.discriminator'"));
}

TEST(ModelFileTest, RefusesToSaveWhatCouldNotBeLoaded) {
  GanModel model = SmallGenerator();
  model.latent_dim = 17;
  EXPECT_EQ(SerializeGanModel(model).status().code(),
            absl::StatusCode::kInvalidArgument);
  model = SmallGenerator();
  model.class_names = {"cat"};
  EXPECT_EQ(SerializeGanModel(model).status().code(),
            absl::StatusCode::kInvalidArgument);
  GanOptions options = SmallGanOptions();
  options.classes = 1;
  model = SmallGenerator(options);
  model.class_names = {std::string(kMaxClassNameBytes, 'x')};
  const absl::StatusOr<std::string> longest = SerializeGanModel(model);
  ASSERT_EQ(longest.status(), absl::OkStatus());
  EXPECT_EQ(ParseGenerator(*longest)->class_names, model.class_names);
  model.class_names[0] += 'x';
  EXPECT_THAT(std::string(SerializeGanModel(model).status().message()),
              HasSubstr("a name of more than 4096 bytes"));
  model = SmallGenerator();
  model.architecture = static_cast<GanArchitecture>(2);
  EXPECT_EQ(SerializeGanModel(model).status().code(),
            absl::StatusCode::kInvalidArgument);
  model = SmallGenerator();
  model.architecture = GanArchitecture::kDcgan;
  EXPECT_EQ(SerializeGanModel(model).status().code(),
            absl::StatusCode::kInvalidArgument);
  model = SmallGenerator();
  model.weights.pop_back();
  const std::string path = TempPath("never.pt");
  EXPECT_EQ(SaveGanModel(path, model).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ModelFileTest, SystemErrorsNameThePath) {
  const std::string missing = TempPath("missing.pt");
  absl::Status status = LoadGanModel(missing, GanNetwork::kGenerator).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(missing));

  const std::string folder = TempPath("folder.pt");
  std::filesystem::create_directories(folder);
  status = LoadGanModel(folder, GanNetwork::kGenerator).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder));

  const std::string pipe = TempPath("pipe.pt");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  status = LoadGanModel(pipe, GanNetwork::kGenerator).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);

  status = SaveGanModel(TempPath("no/such/folder.pt"), SmallGenerator());
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("no/such/folder.pt"));
}

TEST(ModelFileTest, SavingReplacesTheOldFileAndLeavesNothingElse) {
  const std::string folder = TempPath("replace");
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/generator.pt";
  ASSERT_EQ(SaveGanModel(path, SmallGenerator(1)), absl::OkStatus());
  ASSERT_EQ(SaveGanModel(path, SmallGenerator(2)), absl::OkStatus());
  EXPECT_TRUE(Equal(LoadGanModel(path, GanNetwork::kGenerator)->weights,
                    SmallGenerator(2).weights));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder),
                          std::filesystem::directory_iterator()),
            1);
}

}  // namespace
}  // namespace miniray::ml
