#include "ml/gan/architecture.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace miniray::ml {
namespace {

constexpr int64_t kSmallestDcganMap = 4;
constexpr int64_t kLargestDcganMap = 7;
constexpr int64_t kFewestDcganChannels = 64;
constexpr int64_t kMostDcganChannels = 512;

constexpr size_t kNameInMessage = 80;  // Bytes of a name from a file.

// Lists the tensors of layers, one after the other.
class LayerList {
 public:
  // bias: false where a BatchNorm follows, which has one.
  void Linear(int64_t inputs, int64_t outputs, bool bias = true) {
    Weights({outputs, inputs}, outputs, bias);
  }
  void Convolution(int64_t in, int64_t out, bool bias) {
    Weights({out, in, kDcganKernel, kDcganKernel}, out, bias);
  }
  void TransposedConvolution(int64_t in, int64_t out, bool bias) {
    Weights({in, out, kDcganKernel, kDcganKernel}, out, bias);
  }
  void BatchNorm(int64_t features) {
    Add({.name = "weight", .sizes = {features}});
    Add({.name = "bias", .sizes = {features}});
    Add({.name = "running_mean", .sizes = {features}, .is_buffer = true});
    Add({.name = "running_var", .sizes = {features}, .is_buffer = true});
    Add({.name = "num_batches_tracked", .is_buffer = true, .is_integer = true});
    ++count_;
  }
  void WithoutTensors(int layers) { count_ += layers; }

  int count() const { return count_; }
  std::vector<TensorSpec> specs() && { return std::move(specs_); }

 private:
  void Weights(std::vector<int64_t> sizes, int64_t outputs, bool bias) {
    Add({.name = "weight", .sizes = std::move(sizes)});
    if (bias) Add({.name = "bias", .sizes = {outputs}});
    ++count_;
  }
  void Add(TensorSpec spec) {
    spec.name = absl::StrCat("layers.", count_, ".", spec.name);
    specs_.push_back(std::move(spec));
  }

  int count_ = 0;
  std::vector<TensorSpec> specs_;
};

// What the generator starts from: noise, and the label.
int64_t GeneratorInputs(const GanSizes& sizes) {
  return sizes.latent_dim + (sizes.classes > 0 ? kLabelSize : 0);
}

LayerList MlpGenerator(const GanSizes& sizes) {
  LayerList layers;
  int64_t inputs = GeneratorInputs(sizes);
  for (const int64_t width : kGeneratorWidths) {
    layers.Linear(inputs, width);
    layers.WithoutTensors(1);  // ReLU.
    layers.BatchNorm(width);
    inputs = width;
  }
  layers.Linear(inputs, sizes.shape.size());
  layers.WithoutTensors(1);  // Tanh.
  return layers;
}

LayerList MlpDiscriminator(const GanSizes& sizes) {
  LayerList layers;
  int64_t inputs = sizes.shape.size();
  for (const int64_t width : kDiscriminatorWidths) {
    layers.Linear(inputs, width);
    layers.WithoutTensors(2);  // LeakyReLU and Dropout.
    inputs = width;
  }
  layers.Linear(inputs, 1);
  return layers;
}

LayerList DcganGenerator(const GanSizes& sizes, const DcganStages& stages) {
  LayerList layers;
  layers.Linear(GeneratorInputs(sizes), stages.features(), /*bias=*/false);
  layers.WithoutTensors(1);  // Unflatten.
  for (size_t i = stages.widths.size(); i-- > 0;) {
    layers.BatchNorm(stages.widths[i]);
    layers.WithoutTensors(1);  // ReLU.
    const bool last = i == 0;
    layers.TransposedConvolution(
        stages.widths[i], last ? sizes.shape.channels : stages.widths[i - 1],
        /*bias=*/last);
  }
  layers.WithoutTensors(1);  // Tanh.
  return layers;
}

LayerList DcganDiscriminator(const GanSizes& sizes, const DcganStages& stages) {
  LayerList layers;
  for (size_t i = 0; i < stages.widths.size(); ++i) {
    const bool first = i == 0;
    layers.Convolution(first ? sizes.shape.channels : stages.widths[i - 1],
                       stages.widths[i], /*bias=*/first);
    if (!first) layers.BatchNorm(stages.widths[i]);
    layers.WithoutTensors(1);  // LeakyReLU.
  }
  layers.WithoutTensors(1);  // Flatten.
  layers.Linear(stages.features(), 1);
  return layers;
}

LayerList LayersOf(GanNetwork network, const GanSizes& sizes) {
  const bool is_generator = network == GanNetwork::kGenerator;
  if (sizes.architecture == GanArchitecture::kMlp) {
    return is_generator ? MlpGenerator(sizes) : MlpDiscriminator(sizes);
  }
  const DcganStages stages = *DcganStagesFor(sizes.shape);
  return is_generator ? DcganGenerator(sizes, stages)
                      : DcganDiscriminator(sizes, stages);
}

// Columns of the embedding of labels.
int64_t LabelColumns(GanNetwork network, const GanSizes& sizes) {
  if (network == GanNetwork::kGenerator) return kLabelSize;
  if (sizes.architecture == GanArchitecture::kMlp) {
    return kDiscriminatorWidths.back();
  }
  return DcganStagesFor(sizes.shape)->features();
}

// Returns the halvings of a side; 0 if a DCGAN cannot have it.
int Halvings(int64_t side) {
  int halvings = 0;
  while (side > kLargestDcganMap && side % 2 == 0) {
    side /= 2;
    ++halvings;
  }
  return side >= kSmallestDcganMap && side <= kLargestDcganMap ? halvings : 0;
}

// Returns "28 and 32": the sides that fit on both sides of one that does not.
std::string NearestSides(int64_t side) {
  int64_t above = std::max(side, 2 * kSmallestDcganMap);
  while (Halvings(above) == 0) ++above;
  int64_t below = side;
  while (below > 0 && Halvings(below) == 0) --below;
  return below > 0 ? absl::StrCat(below, " and ", above) : absl::StrCat(above);
}

}  // namespace

std::string ImageShape::ToString() const {
  return absl::StrCat(channels, "x", height, "x", width);
}

absl::string_view GanArchitectureName(GanArchitecture architecture) {
  return architecture == GanArchitecture::kMlp ? "mlp" : "dcgan";
}

absl::StatusOr<GanArchitecture> ParseGanArchitecture(absl::string_view name) {
  for (const GanArchitecture architecture :
       {GanArchitecture::kMlp, GanArchitecture::kDcgan}) {
    if (name == GanArchitectureName(architecture)) return architecture;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the architecture is '",
                   absl::Utf8SafeCHexEscape(name.substr(0, kNameInMessage)),
                   "'; expected mlp or dcgan"));
}

absl::string_view GanNetworkName(GanNetwork network) {
  return network == GanNetwork::kGenerator ? "generator" : "discriminator";
}

absl::StatusOr<DcganStages> DcganStagesFor(const ImageShape& shape) {
  if (shape.height != shape.width) {
    return absl::InvalidArgumentError(
        absl::StrCat("images are ", shape.ToString(),
                     "; dcgan takes square ones: take the architecture mlp, or "
                     "bring the images to another size"));
  }
  const int halvings = Halvings(shape.height);
  if (halvings == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "images are ", shape.ToString(),
        "; dcgan takes sides that are 4, 5, 6 "
        "or 7 doubled at least once, such as 28, 32 and 64; nearest: ",
        NearestSides(shape.height),
        ": take the architecture mlp, or bring the images to such a size"));
  }
  DcganStages stages = {.smallest = shape.height >> halvings};
  int64_t width = kFewestDcganChannels;
  for (int i = 0; i < halvings; ++i) {
    stages.widths.push_back(width);
    width = std::min(2 * width, kMostDcganChannels);
  }
  return stages;
}

absl::Status ValidateGanSizes(const GanSizes& sizes) {
  const ImageShape& shape = sizes.shape;
  if (sizes.latent_dim < 1 || sizes.latent_dim > kMaxLatentDim) {
    return absl::InvalidArgumentError(absl::StrCat(
        "latent_dim is ", sizes.latent_dim, "; expected 1 to ", kMaxLatentDim));
  }
  if (shape.channels != 1 && shape.channels != 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        "images have ", shape.channels, " channels; expected 1 or 3"));
  }
  if (shape.height < 1 || shape.width < 1 || shape.height > kMaxImageSize ||
      shape.width > kMaxImageSize || shape.size() > kMaxImageSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "images are ", shape.ToString(), " values; expected at least 1x1x1 and",
        " at most ", kMaxImageSize, " in all"));
  }
  if (sizes.classes < 0 || sizes.classes > kMaxClasses) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there are ", sizes.classes, " classes; expected 0 to ", kMaxClasses));
  }
  switch (sizes.architecture) {
    case GanArchitecture::kMlp:
      return absl::OkStatus();
    case GanArchitecture::kDcgan:
      return DcganStagesFor(shape).status();
  }
  // From the wire, it may be any number.
  return absl::InvalidArgumentError(
      absl::StrCat("the architecture is ", static_cast<int>(sizes.architecture),
                   "; expected mlp or dcgan"));
}

int GanLayerCount(GanNetwork network, const GanSizes& sizes) {
  return LayersOf(network, sizes).count();
}

std::vector<TensorSpec> GanTensors(GanNetwork network, const GanSizes& sizes) {
  std::vector<TensorSpec> specs;
  if (sizes.classes > 0) {
    specs.push_back({.name = "embedding.weight",
                     .sizes = {sizes.classes, LabelColumns(network, sizes)}});
  }
  std::vector<TensorSpec> layers = LayersOf(network, sizes).specs();
  std::move(layers.begin(), layers.end(), std::back_inserter(specs));
  return specs;
}

}  // namespace miniray::ml
