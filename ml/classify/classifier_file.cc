#include "ml/classify/classifier_file.h"

#include <cstddef>
#include <exception>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ml/data/exception_text.h"
#include "ml/gan/zip_check.h"
#include "runtime/base/status_macros.h"
#include "torch/serialize/archive.h"

namespace miniray::ml {
namespace {

using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

constexpr char kFormat[] = "miniray.classifier";
constexpr int64_t kVersion = 1;
// On what a file may ask for: far above any sensible network, and low enough
// that no size computed from them overflows.
constexpr int64_t kMaxPixels = int64_t{1} << 20;
constexpr int64_t kMaxUnits = int64_t{1} << 16;
// Of a name. A small file can refer to one long name many times.
constexpr size_t kMaxNameBytes = 256;

// Returns the value at `key`, or None if there is none.
c10::IValue Value(InputArchive& archive, const std::string& key) {
  c10::IValue value;
  archive.try_read(key, value);
  return value;
}

// What a file says, fit for a message.
std::string Legible(const std::string& text) {
  return absl::Utf8SafeCHexEscape(
      absl::string_view(text).substr(0, kMaxNameBytes));
}

// Whether a tensor is plain and within its memory: LibTorch does not look.
bool IsSound(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided ||
      !tensor.is_contiguous() || tensor.storage_offset() < 0) {
    return false;
  }
  // No sum or product here: a file may have any sizes.
  const auto held =
      static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  return tensor.storage_offset() <= held &&
         tensor.numel() <= held - tensor.storage_offset();
}

bool IsWithin(int64_t value, int64_t maximum) {
  return value >= 1 && value <= maximum;
}

// file_bytes: that the archive has.
absl::Status ReadWeights(InputArchive& archive, size_t file_bytes,
                         NamedTensors* weights) {
  const c10::IValue names = Value(archive, "names");
  const c10::IValue tensors = Value(archive, "weights");
  if (!names.isList() || !tensors.isTensorList() ||
      names.toListRef().size() != tensors.toTensorVector().size()) {
    return absl::DataLossError("its names or weights are missing");
  }
  const std::vector<at::Tensor> values = tensors.toTensorVector();
  // Many weights may be views of one piece of memory; copies are not.
  auto left = static_cast<int64_t>(file_bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    const c10::IValue& name = names.toListRef()[i];
    if (!name.isString() || name.toStringRef().size() > kMaxNameBytes ||
        !IsSound(values[i])) {
      return absl::DataLossError(absl::StrCat("its weight ", i, " is damaged"));
    }
    const auto size = static_cast<int64_t>(values[i].element_size());
    if (values[i].numel() > left / size) {
      return absl::DataLossError("its weights are more than the file");
    }
    left -= values[i].numel() * size;
    weights->emplace_back(name.toStringRef(), values[i].detach().clone());
  }
  return absl::OkStatus();
}

// May throw what LibTorch throws.
absl::StatusOr<SavedClassifier> Parse(const std::string& bytes) {
  InputArchive archive;
  archive.load_from(bytes.data(), bytes.size(), torch::Device(torch::kCPU));
  const c10::IValue format = Value(archive, "format");
  if (!format.isString() || format.toStringRef() != kFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("it holds ",
                     format.isString()
                         ? absl::StrCat("'", Legible(format.toStringRef()), "'")
                         : "something else",
                     "; expected '", kFormat, "'"));
  }
  const c10::IValue version = Value(archive, "version");
  if (!version.isInt() || version.toInt() < 1) {
    return absl::DataLossError("it has no version");
  }
  if (version.toInt() > kVersion) {
    return absl::UnimplementedError(
        absl::StrCat("its version is ", version.toInt(),
                     "; this program reads versions up to ", kVersion));
  }
  const c10::IValue network = Value(archive, "network");
  const c10::IValue dataset = Value(archive, "dataset");
  const c10::IValue shape = Value(archive, "image_shape");
  const c10::IValue hidden = Value(archive, "hidden");
  const c10::IValue classes = Value(archive, "classes");
  if (!network.isString() || !dataset.isString() || !shape.isIntList() ||
      shape.toIntVector().size() != 3 || !hidden.isInt() || !classes.isInt()) {
    return absl::DataLossError("its network or sizes are missing");
  }
  const std::vector<int64_t> sizes = shape.toIntVector();
  SavedClassifier saved = {.network = Legible(network.toStringRef()),
                           .channels = sizes[0],
                           .height = sizes[1],
                           .width = sizes[2],
                           .hidden = hidden.toInt(),
                           .classes = classes.toInt(),
                           .dataset = Legible(dataset.toStringRef())};
  // Each first, so that the product cannot overflow.
  if (!IsWithin(saved.channels, kMaxPixels) ||
      !IsWithin(saved.height, kMaxPixels) ||
      !IsWithin(saved.width, kMaxPixels) ||
      !IsWithin(saved.channels * saved.height, kMaxPixels) ||
      !IsWithin(saved.channels * saved.height * saved.width, kMaxPixels) ||
      !IsWithin(saved.hidden, kMaxUnits) ||
      !IsWithin(saved.classes, kMaxUnits)) {
    return absl::DataLossError("its sizes cannot be");
  }
  MR_RETURN_IF_ERROR(ReadWeights(archive, bytes.size(), &saved.weights));
  return saved;
}

// Whether there are weights for the layers whose sizes the file says: else a
// small one would ask for much memory, before it is found that its weights do
// not fit.
absl::Status CheckNumber(const SavedClassifier& saved) {
  int64_t numbers = 0;
  for (const auto& [name, tensor] : saved.weights) numbers += tensor.numel();
  int64_t least = 0;
  if (saved.network == "mlp") {
    least = (saved.channels * saved.height * saved.width + saved.classes) *
            saved.hidden;
  } else if (saved.network == "cnn") {
    const int64_t inputs = 64 * (saved.height / 4) * (saved.width / 4);
    least = 32 * 9 * saved.channels + (inputs + saved.classes) * saved.hidden;
  } else if (saved.network == "resnet20") {
    least = 16 * 9 * saved.channels + 64 * saved.classes;
  }
  if (numbers < least) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", numbers, " weights; a ", saved.network,
                     " of these sizes has more"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> SerializeClassifier(const SavedClassifier& saved) {
  try {
    std::vector<std::string> names;
    c10::List<at::Tensor> tensors;
    for (const auto& [name, tensor] : saved.weights) {
      names.push_back(name);
      // A copy: of a part of a large piece of memory, the archive would hold
      // all of it.
      tensors.push_back(tensor.detach().cpu().contiguous().clone());
    }
    OutputArchive archive;
    archive.write("format", c10::IValue(kFormat));
    archive.write("version", c10::IValue(kVersion));
    archive.write("network", c10::IValue(saved.network));
    archive.write("image_shape",
                  c10::IValue(std::vector<int64_t>{saved.channels, saved.height,
                                                   saved.width}));
    archive.write("hidden", c10::IValue(saved.hidden));
    archive.write("classes", c10::IValue(saved.classes));
    archive.write("dataset", c10::IValue(saved.dataset));
    archive.write("names", c10::IValue(names));
    archive.write("weights", c10::IValue(tensors));
    std::ostringstream bytes;
    archive.save_to(bytes);
    return std::move(bytes).str();
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(
        "LibTorch could not write the classifier: ", FirstLine(error)));
  }
}

absl::StatusOr<SavedClassifier> ParseClassifier(const std::string& bytes,
                                                absl::string_view name) {
  const std::string context =
      absl::StrCat(name, ": not a classifier that `classification` saved");
  MR_RETURN_IF_ERROR(Annotate(CheckZipArchive(bytes), context));
  try {
    absl::StatusOr<SavedClassifier> saved = Parse(bytes);
    if (!saved.ok()) return Annotate(saved.status(), context);
    return saved;
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(context, ": LibTorch cannot read it: ", FirstLine(error)));
  }
}

absl::StatusOr<std::unique_ptr<Classifier>> MakeClassifier(
    const SavedClassifier& saved, const std::string& device) {
  MR_RETURN_IF_ERROR(CheckNumber(saved));
  try {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<Classifier> classifier,
                        Classifier::Create({.network = saved.network,
                                            .channels = saved.channels,
                                            .height = saved.height,
                                            .width = saved.width,
                                            .hidden = saved.hidden,
                                            .classes = saved.classes,
                                            .device = device}));
    MR_RETURN_IF_ERROR(classifier->SetWeights(saved.weights));
    return classifier;
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(
        "LibTorch could not make the classifier: ", FirstLine(error)));
  }
}

}  // namespace miniray::ml
