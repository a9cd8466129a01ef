// Compares our networks, optimizer and files with LibTorch's own. The only test
// of this folder that includes torch/torch.h.

#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/gan/fused_adam.h"
#include "ml/gan/model_file.h"
#include "ml/gan/networks.h"
#include "tests/ml/gan/gan_testutil.h"
#include "torch/torch.h"

namespace miniray::ml {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

GanSizes Mlp(int64_t latent_dim, const ImageShape& shape) {
  return {.latent_dim = latent_dim, .shape = shape};
}
const GanSizes kCifar10 = Mlp(100, {3, 32, 32});
const GanSizes kSmall = Mlp(8, kSmallShape);
// Two halvings.
const GanSizes kSmallDcgan = {.latent_dim = 8,
                              .shape = {1, 16, 16},
                              .architecture = GanArchitecture::kDcgan};

GanSizes WithClasses(GanSizes sizes, int64_t classes) {
  sizes.classes = classes;
  return sizes;
}

at::Generator Random(uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

void ExpectSameTensors(const std::vector<TensorSpec>& specs,
                       const torch::nn::Module& module) {
  auto parameters = module.named_parameters();
  auto buffers = module.named_buffers();
  EXPECT_EQ(parameters.size() + buffers.size(), specs.size());
  for (const TensorSpec& spec : specs) {
    torch::Tensor* tensor =
        spec.is_buffer ? buffers.find(spec.name) : parameters.find(spec.name);
    ASSERT_NE(tensor, nullptr) << spec.name;
    EXPECT_EQ(tensor->sizes(), at::IntArrayRef(spec.sizes)) << spec.name;
    EXPECT_EQ(tensor->scalar_type(), spec.is_integer ? at::kLong : at::kFloat);
  }
}

TEST(NetworksTest, ModulesHaveTheTensorsOfTheArchitecture) {
  GanSizes fashion_mnist = kSmallDcgan;
  fashion_mnist.shape = {1, 28, 28};
  for (const GanSizes& sizes : {kCifar10, WithClasses(kSmall, 4), kSmallDcgan,
                                WithClasses(fashion_mnist, 10)}) {
    Generator generator(sizes, Random(1));
    Discriminator discriminator(sizes, Random(1), Random(2));
    ExpectSameTensors(GanTensors(GanNetwork::kGenerator, sizes), *generator);
    ExpectSameTensors(GanTensors(GanNetwork::kDiscriminator, sizes),
                      *discriminator);
  }
}

TEST(NetworksTest, GeneratorMapsNoiseToImages) {
  Generator generator(kCifar10, Random(1));
  const torch::Tensor images = generator->forward(torch::randn({4, 100}));
  EXPECT_EQ(images.sizes(), at::IntArrayRef({4, 3, 32, 32}));
  EXPECT_LE(images.abs().max().item<float>(), 1.0f);
  EXPECT_THROW(generator->forward(torch::randn({4, 99})), c10::Error);
}

TEST(NetworksTest, GeneratorLayersStandInTheOrderOfTheTable) {
  Generator generator(kSmall, Random(1));
  auto p = generator->named_parameters();
  const torch::Tensor noise = torch::randn({6, 8});
  torch::Tensor x = noise;
  for (const char* layer : {"0", "3", "6"}) {
    const std::string linear = std::string("layers.") + layer;
    const std::string norm = "layers." + std::to_string(std::stoi(layer) + 2);
    x = torch::relu(
        torch::linear(x, p[linear + ".weight"], p[linear + ".bias"]));
    x = torch::batch_norm(x, p[norm + ".weight"], p[norm + ".bias"], {}, {},
                          /*training=*/true, 0.1, 1e-5, false);
  }
  x = torch::tanh(torch::linear(x, p["layers.9.weight"], p["layers.9.bias"]));
  EXPECT_TRUE(
      torch::allclose(generator->forward(noise).flatten(1), x, 1e-4, 1e-5));
}

TEST(NetworksTest, DiscriminatorLayersStandInTheOrderOfTheTable) {
  Discriminator discriminator(kSmall, Random(1), Random(2));
  discriminator->eval();
  auto p = discriminator->named_parameters();
  const torch::Tensor images = torch::rand({6, 1, 8, 8}) * 2 - 1;
  torch::Tensor x = images.flatten(1);
  for (const std::string layer : {"layers.0", "layers.3", "layers.6"}) {
    x = torch::leaky_relu(
        torch::linear(x, p[layer + ".weight"], p[layer + ".bias"]), 0.2);
  }
  x = torch::linear(x, p["layers.9.weight"], p["layers.9.bias"]);
  EXPECT_EQ(x.sizes(), at::IntArrayRef({6, 1}));
  EXPECT_TRUE(torch::allclose(discriminator->Logits(images), x));
  EXPECT_TRUE(torch::allclose(discriminator->forward(images), x.sigmoid()));
}

TEST(NetworksTest, InitialWeightsAreTorchsDistribution) {
  Discriminator discriminator(kCifar10, Random(1), Random(2));
  torch::nn::Linear reference(3072, 1024);
  const torch::Tensor weight =
      discriminator->named_parameters()["layers.0.weight"];
  EXPECT_LE(weight.abs().max().item<double>(), 1 / std::sqrt(3072.0));
  EXPECT_NEAR(weight.std().item<double>(),
              reference->weight.std().item<double>(), 1e-5);
  EXPECT_NEAR(weight.mean().item<double>(), 0, 1e-4);
}

TEST(NetworksTest, DcganGeneratorLayersStandInTheOrderOfThePaper) {
  Generator generator(kSmallDcgan, Random(1));
  auto p = generator->named_parameters();
  const auto normalised = [&](torch::Tensor x, const std::string& layer) {
    return torch::relu(torch::batch_norm(x, p[layer + ".weight"],
                                         p[layer + ".bias"], {}, {},
                                         /*training=*/true, 0.1, 1e-5, false));
  };
  const torch::Tensor noise = torch::randn({6, 8});
  torch::Tensor x = torch::linear(noise, p["layers.0.weight"]);
  x = normalised(x.view({6, 128, 4, 4}), "layers.2");
  x = torch::conv_transpose2d(x, p["layers.4.weight"], {}, 2, 1);
  EXPECT_EQ(x.sizes(), at::IntArrayRef({6, 64, 8, 8}));
  x = normalised(x, "layers.5");
  x = torch::conv_transpose2d(x, p["layers.7.weight"], p["layers.7.bias"], 2,
                              1);
  const torch::Tensor images = generator->forward(noise);
  EXPECT_EQ(images.sizes(), at::IntArrayRef({6, 1, 16, 16}));
  EXPECT_TRUE(torch::allclose(images, x.tanh(), 1e-4, 1e-5));
}

TEST(NetworksTest, DcganDiscriminatorLayersStandInTheOrderOfThePaper) {
  Discriminator discriminator(kSmallDcgan, Random(1), Random(2));
  auto p = discriminator->named_parameters();
  const torch::Tensor images = torch::rand({6, 1, 16, 16}) * 2 - 1;
  torch::Tensor x =
      torch::conv2d(images, p["layers.0.weight"], p["layers.0.bias"], 2, 1);
  EXPECT_EQ(x.sizes(), at::IntArrayRef({6, 64, 8, 8}));
  x = torch::conv2d(torch::leaky_relu(x, 0.2), p["layers.2.weight"], {}, 2, 1);
  EXPECT_EQ(x.sizes(), at::IntArrayRef({6, 128, 4, 4}));
  x = torch::batch_norm(x, p["layers.3.weight"], p["layers.3.bias"], {}, {},
                        /*training=*/true, 0.1, 1e-5, false);
  x = torch::linear(torch::leaky_relu(x, 0.2).flatten(1), p["layers.6.weight"],
                    p["layers.6.bias"]);
  EXPECT_EQ(x.sizes(), at::IntArrayRef({6, 1}));
  EXPECT_TRUE(torch::allclose(discriminator->Logits(images), x, 1e-4, 1e-5));
}

TEST(NetworksTest, DcganWeightsAreThoseOfThePaper) {
  GanSizes sizes = kSmallDcgan;
  sizes.shape = {3, 32, 32};
  Generator generator(sizes, Random(1));
  Discriminator discriminator(sizes, Random(1), Random(2));
  // 64 to 128 channels: 131,072 draws.
  for (const torch::Tensor& weight :
       {generator->named_parameters()["layers.7.weight"],
        discriminator->named_parameters()["layers.2.weight"]}) {
    EXPECT_EQ(weight.dim(), 4);
    EXPECT_NEAR(weight.mean().item<double>(), 0, 3e-4);
    EXPECT_NEAR(weight.std().item<double>(), 0.02, 3e-4);
  }
  EXPECT_TRUE(discriminator->named_parameters()["layers.0.bias"].equal(
      torch::zeros({64})));
  EXPECT_TRUE(generator->named_parameters()["layers.2.weight"].equal(
      torch::ones({256})));
  // The seed's, and nobody else's.
  torch::manual_seed(5);
  Generator again(sizes, Random(1));
  EXPECT_TRUE(again->named_parameters()["layers.7.weight"].equal(
      generator->named_parameters()["layers.7.weight"]));
}

TEST(NetworksTest, TheLabelStandsBehindTheNoise) {
  for (const GanSizes& sizes :
       {WithClasses(kSmall, 4), WithClasses(kSmallDcgan, 4)}) {
    Generator generator(sizes, Random(1));
    GanSizes wide = sizes;
    wide.classes = 0;
    wide.latent_dim = sizes.latent_dim + 32;
    Generator plain(wide, Random(2));
    auto p = generator->named_parameters();
    {
      const torch::NoGradGuard no_grad;
      for (auto& item : plain->named_parameters()) {
        item.value().copy_(p[item.key()]);
      }
    }
    const torch::Tensor noise = torch::randn({5, 8});
    const torch::Tensor labels =
        torch::tensor(std::vector<int64_t>{3, 0, 0, 2, 1});
    const torch::Tensor start =
        torch::cat({noise, p["embedding.weight"].index_select(0, labels)}, 1);
    EXPECT_TRUE(torch::allclose(generator->forward(noise, labels),
                                plain->forward(start), 1e-4, 1e-5));
  }
}

TEST(NetworksTest, TheLabelIsAddedToTheLastLayersWeights) {
  Discriminator discriminator(WithClasses(kSmall, 4), Random(1), Random(2));
  discriminator->eval();
  auto p = discriminator->named_parameters();
  const torch::Tensor images = torch::rand({6, 1, 8, 8}) * 2 - 1;
  torch::Tensor x = images.flatten(1);
  for (const std::string layer : {"layers.0", "layers.3", "layers.6"}) {
    x = torch::leaky_relu(
        torch::linear(x, p[layer + ".weight"], p[layer + ".bias"]), 0.2);
  }
  for (int64_t label = 0; label < 4; ++label) {
    const torch::Tensor logits =
        torch::linear(x, p["layers.9.weight"] + p["embedding.weight"][label],
                      p["layers.9.bias"]);
    EXPECT_TRUE(torch::allclose(
        discriminator->Logits(images, torch::full({6}, label, torch::kLong)),
        logits, 1e-4, 1e-6))
        << label;
  }
}

TEST(SeededDropoutTest, DropsThreeTenthsAndKeepsTheMean) {
  SeededDropout dropout(0.3, Random(1));
  const torch::Tensor x = torch::ones({1000, 1001}, torch::requires_grad());
  const torch::Tensor y = dropout->forward(x);
  EXPECT_NEAR((y == 0).to(torch::kDouble).mean().item<double>(), 0.3, 0.003);
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.003);
  const torch::Tensor kept = y.detach().masked_select(y != 0);
  EXPECT_NEAR(kept.min().item<float>(), 1 / 0.7, 1e-4);
  EXPECT_EQ(kept.min().item<float>(), kept.max().item<float>());

  // The gradient goes through the same mask.
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(y));
  // Each call has a mask of its own, in which columns are not alike.
  EXPECT_FALSE(dropout->forward(x).equal(y));
  const torch::Tensor columns = (y != 0).to(torch::kDouble).mean(0);
  EXPECT_NEAR(columns.min().item<double>(), 0.7, 0.1);
  EXPECT_NEAR(columns.max().item<double>(), 0.7, 0.1);

  dropout->eval();
  EXPECT_TRUE(dropout->forward(x).equal(x));
}

TEST(FusedAdamTest, EqualsTorchsAdam) {
  // Sizes that are no multiple of a register's eight floats.
  std::vector<torch::Tensor> ours, theirs;
  for (const int64_t size : {1, 7, 1000, 70001}) {
    const torch::Tensor start = torch::randn({size});
    ours.push_back(start.clone().requires_grad_());
    theirs.push_back(start.clone().requires_grad_());
  }
  FusedAdam adam(ours, torch::optim::AdamOptions(1e-2).betas({0.5, 0.999}));
  torch::optim::Adam reference(
      theirs, torch::optim::AdamOptions(1e-2).betas({0.5, 0.999}));
  for (int step = 0; step < 20; ++step) {
    for (size_t i = 0; i < ours.size(); ++i) {
      const torch::Tensor gradient =
          torch::randn_like(ours[i]) * (i == 3 ? 1e-4 : 1.0);
      ours[i].mutable_grad() = gradient.clone();
      theirs[i].mutable_grad() = gradient.clone();
    }
    adam.step();
    reference.step();
  }
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(torch::allclose(ours[i], theirs[i], 1e-4, 1e-5)) << i;
    EXPECT_FALSE(ours[i].grad().defined());
  }
}

TEST(FusedAdamTest, LeavesParametersWithoutGradientAlone) {
  const torch::Tensor parameter = torch::ones({3}).requires_grad_();
  FusedAdam adam({parameter}, {});
  adam.step();
  EXPECT_TRUE(parameter.equal(torch::ones({3})));
  EXPECT_THROW(FusedAdam({torch::ones({3}, torch::kDouble)}, {}), c10::Error);
  EXPECT_THROW(
      FusedAdam({parameter}, torch::optim::AdamOptions().weight_decay(0.1)),
      c10::Error);
}

TEST(ModelFileTest, LibTorchReadsOurFiles) {
  const GanModel model = SmallGenerator();
  std::istringstream bytes(*SerializeGanModel(model));
  torch::serialize::InputArchive archive;
  archive.load_from(bytes);
  torch::serialize::InputArchive module;
  archive.read("generator", module);
  Generator generator(Mlp(16, kSmallShape), Random(99));
  generator->load(module);
  auto parameters = generator->named_parameters();
  EXPECT_TRUE(parameters["layers.9.weight"].equal(
      model.weights[model.weights.size() - 2].second));
}

std::string Bytes(torch::serialize::OutputArchive& archive) {
  std::ostringstream bytes;
  archive.save_to(bytes);
  return std::move(bytes).str();
}

void ExpectRefused(const std::string& bytes, const std::string& why) {
  const absl::Status status =
      ParseGanModel(bytes, GanNetwork::kGenerator, "g.pt").status();
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr("g.pt: not a generator that `train` saved"));
  EXPECT_THAT(message, HasSubstr(why));
  EXPECT_THAT(message, Not(HasSubstr("\n")));
}

TEST(ModelFileTest, RefusesArchivesOfSomethingElse) {
  torch::nn::Linear linear(3, 4);
  torch::serialize::OutputArchive module;
  linear->save(module);
  ExpectRefused(Bytes(module), "it holds something else");

  torch::serialize::OutputArchive number;
  number.write("format", c10::IValue(5));
  ExpectRefused(Bytes(number), "it holds something else");

  // What a file says does not write to the terminal.
  torch::serialize::OutputArchive text;
  text.write("format", c10::IValue("a\nb\x1b" + std::string(100, 'z')));
  ExpectRefused(Bytes(text), "it holds 'a\\nb\\x1b" + std::string(76, 'z') +
                                 "'; expected 'miniray.gan.generator'");

  std::ostringstream tensor;
  torch::save(torch::ones({3}), tensor);
  ExpectRefused(tensor.str(), "it holds something else");
}

TEST(ModelFileTest, LibTorchReadsOurFilesOfAConditionalDcgan) {
  GanOptions options = SmallGanOptions();
  options.architecture = GanArchitecture::kDcgan;
  options.classes = 3;
  const GanModel model = SmallGenerator(options);
  std::istringstream bytes(*SerializeGanModel(model));
  torch::serialize::InputArchive archive;
  archive.load_from(bytes);
  torch::serialize::InputArchive module;
  archive.read("generator", module);
  Generator generator(options.sizes(), Random(99));
  generator->load(module);
  EXPECT_TRUE(generator->named_parameters()["embedding.weight"].equal(
      model.weights.front().second));
  EXPECT_TRUE(generator->named_parameters()["layers.4.bias"].equal(
      model.weights.back().second));
}

TEST(ModelFileTest, AnMlpWithoutClassesStaysVersion1) {
  const auto version = [](const GanModel& model) {
    std::istringstream bytes(*SerializeGanModel(model));
    torch::serialize::InputArchive archive;
    archive.load_from(bytes);
    c10::IValue value;
    archive.read("version", value);
    return value.toInt();
  };
  EXPECT_EQ(version(SmallGenerator()), 1);
  GanOptions options = SmallGanOptions();
  options.classes = 2;
  EXPECT_EQ(version(SmallGenerator(options)), 2);
}

// What an archive says about itself; by default, the truth.
struct Metadata {
  int64_t version = 1;
  int64_t latent_dim = 16;
  std::vector<int64_t> shape = {1, 8, 8};
  bool module = true;
  // Of the module in it.
  GanSizes sizes = Mlp(16, kSmallShape);
  // With version 2, unless they are None.
  c10::IValue architecture = "mlp";
  c10::IValue classes = int64_t{0};
  c10::IValue class_names = std::vector<std::string>{};
};

std::string ArchiveWith(const Metadata& metadata) {
  torch::serialize::OutputArchive archive;
  archive.write("format", c10::IValue("miniray.gan.generator"));
  archive.write("version", c10::IValue(metadata.version));
  archive.write("latent_dim", c10::IValue(metadata.latent_dim));
  archive.write("image_shape", c10::IValue(metadata.shape));
  if (metadata.version >= 2) {
    const std::pair<const char*, const c10::IValue&> values[] = {
        {"architecture", metadata.architecture},
        {"classes", metadata.classes},
        {"class_names", metadata.class_names}};
    for (const auto& [key, value] : values) {
      if (!value.isNone()) archive.write(key, value);
    }
  }
  if (metadata.module) {
    Generator generator(metadata.sizes, Random(1));
    torch::serialize::OutputArchive module(archive.compilation_unit());
    generator->save(module);
    archive.write("generator", module);
  }
  return Bytes(archive);
}

TEST(ModelFileTest, ChecksWhatAnArchiveSaysAboutItself) {
  EXPECT_EQ(
      ParseGanModel(ArchiveWith({}), GanNetwork::kGenerator, "g.pt").status(),
      absl::OkStatus());
  ExpectRefused(ArchiveWith({.version = 3}), "its version is 3");
  ExpectRefused(ArchiveWith({.version = 0}), "it has no version");
  ExpectRefused(ArchiveWith({.latent_dim = 17}),
                "layers.0.weight is Float [256, 16]; expected Float [256, 17]");
  ExpectRefused(ArchiveWith({.latent_dim = -1}), "latent_dim is -1");
  ExpectRefused(ArchiveWith({.latent_dim = int64_t{1} << 60}), "latent_dim");
  ExpectRefused(ArchiveWith({.shape = {1, 8}}), "image_shape is missing");
  ExpectRefused(ArchiveWith({.shape = {3, 8, 8}}),
                "layers.9.weight is Float [64, 1024]");
  ExpectRefused(ArchiveWith({.shape = {3, int64_t{1} << 40, 8}}),
                "images are 3x1099511627776x8");
  ExpectRefused(ArchiveWith({.module = false}), "it has no module 'generator'");
}

TEST(ModelFileTest, TensorsThatShareMemoryInAnArchiveAreApartAfterwards) {
  Generator generator(Mlp(16, kSmallShape), Random(1));
  {
    const torch::NoGradGuard no_grad;
    auto buffers = generator->named_buffers();
    buffers["layers.2.running_mean"].set_data(buffers["layers.2.running_var"]);
  }
  torch::serialize::OutputArchive archive;
  archive.write("format", c10::IValue("miniray.gan.generator"));
  archive.write("version", c10::IValue(int64_t{1}));
  archive.write("latent_dim", c10::IValue(int64_t{16}));
  archive.write("image_shape", c10::IValue(std::vector<int64_t>{1, 8, 8}));
  torch::serialize::OutputArchive module(archive.compilation_unit());
  generator->save(module);
  archive.write("generator", module);
  absl::StatusOr<GanModel> model =
      ParseGanModel(Bytes(archive), GanNetwork::kGenerator, "g.pt");
  ASSERT_EQ(model.status(), absl::OkStatus());
  const auto tensor = [&](const std::string& wanted) {
    for (const auto& [name, each] : model->weights) {
      if (name == wanted) return each;
    }
    return at::Tensor();
  };
  const at::Tensor mean = tensor("layers.2.running_mean");
  ASSERT_TRUE(mean.equal(torch::ones({256})));
  mean.zero_();
  EXPECT_TRUE(tensor("layers.2.running_var").equal(torch::ones({256})));
}

TEST(ModelFileTest, ChecksWhatVersion2SaysBesides) {
  const Metadata good = {.version = 2,
                         .sizes = WithClasses(Mlp(16, kSmallShape), 2),
                         .classes = int64_t{2},
                         .class_names = std::vector<std::string>{"cat", "dog"}};
  const absl::StatusOr<GanModel> model =
      ParseGanModel(ArchiveWith(good), GanNetwork::kGenerator, "g.pt");
  ASSERT_EQ(model.status(), absl::OkStatus());
  EXPECT_EQ(model->classes, 2);
  EXPECT_THAT(model->class_names, ElementsAre("cat", "dog"));

  Metadata bad = good;
  bad.architecture = c10::IValue();
  ExpectRefused(ArchiveWith(bad), "architecture, classes or class_names are");
  bad = good;
  bad.architecture = int64_t{1};
  ExpectRefused(ArchiveWith(bad), "architecture, classes or class_names are");
  bad = good;
  bad.architecture = "rnn";
  ExpectRefused(ArchiveWith(bad), "'rnn'; expected mlp or dcgan");
  bad.architecture = "r\nnn" + std::string(100, 'n');
  ExpectRefused(ArchiveWith(bad),
                "is 'r\\n" + std::string(78, 'n') + "'; expected mlp or dcgan");
  bad = good;
  bad.architecture = "dcgan";
  ExpectRefused(ArchiveWith(bad), "its weights: layers.0.weight");
  bad = good;
  bad.architecture = "dcgan";
  bad.shape = {1, 30, 30};
  ExpectRefused(ArchiveWith(bad), "nearest: 28 and 32");
  bad = good;
  bad.class_names = std::vector<std::string>{"cat"};
  ExpectRefused(ArchiveWith(bad), "1 names for 2 classes");
  bad.class_names = std::vector<std::string>(1000, "cat");
  ExpectRefused(ArchiveWith(bad), "1000 names for 2 classes");
  bad.class_names = std::vector<int64_t>{1, 2};
  ExpectRefused(ArchiveWith(bad), "class_names are no strings");
  bad.class_names =
      std::vector<std::string>{"cat", std::string(kMaxClassNameBytes + 1, 'x')};
  ExpectRefused(ArchiveWith(bad), "a class has a name of more than 4096 bytes");
  bad = good;
  bad.class_names = std::vector<std::string>{};
  for (const int64_t classes : {int64_t{-1}, int64_t{1} << 40}) {
    bad.classes = classes;
    ExpectRefused(ArchiveWith(bad), "classes; expected 0 to");
  }
  bad.classes = int64_t{0};
  bad.class_names = std::vector<std::string>{"cat"};
  ExpectRefused(ArchiveWith(bad), "1 names for 0 classes");
  bad.class_names = std::vector<std::string>{};
  bad.classes = int64_t{3};
  ExpectRefused(ArchiveWith(bad),
                "embedding.weight is Float [2, 32]; expected Float [3, 32]");
}

}  // namespace
}  // namespace miniray::ml
