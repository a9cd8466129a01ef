#include "ml/gan/model_file.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "ml/data/exception_text.h"
#include "ml/gan/gan_tensors.h"
#include "ml/gan/zip_check.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "torch/serialize/archive.h"

namespace miniray::ml {
namespace {

using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

constexpr int64_t kVersion = 2;
constexpr size_t kNamesInMessage = 20;
constexpr size_t kTextInMessage = 80;  // Bytes of what a file says.

std::string Format(GanNetwork network) {
  return absl::StrCat("miniray.gan.", GanNetworkName(network));
}

std::string ModuleKey(GanNetwork network) {
  return std::string(GanNetworkName(network));
}

// Returns "layers", "0", "weight" for "layers.0.weight".
std::vector<std::string> SplitName(const std::string& name) {
  return absl::StrSplit(name, '.');
}

// A layer's tensors.
struct Layer {
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  std::vector<std::pair<std::string, at::Tensor>> buffers;
};

// Writes a network as torch::nn::Module::save does: an archive "layers" with
// one archive a layer, layers without tensors included; and "embedding", if
// there is one.
void WriteModule(const GanModel& model, OutputArchive* module) {
  std::vector<Layer> layers(GanLayerCount(model.network, model.sizes()));
  size_t i = 0;
  for (const TensorSpec& spec : GanTensors(model.network, model.sizes())) {
    const std::vector<std::string> path = SplitName(spec.name);
    if (path[0] != "layers") {
      OutputArchive one(module->compilation_unit());
      one.write(path[1], model.weights[i++].second.detach());
      module->write(path[0], one);
      continue;
    }
    Layer& layer = layers.at(std::stoi(path[1]));
    (spec.is_buffer ? layer.buffers : layer.parameters)
        .emplace_back(path[2], model.weights[i++].second.detach());
  }
  OutputArchive all(module->compilation_unit());
  for (size_t index = 0; index < layers.size(); ++index) {
    OutputArchive one(module->compilation_unit());
    for (const auto& [name, tensor] : layers[index].parameters) {
      one.write(name, tensor);
    }
    for (const auto& [name, tensor] : layers[index].buffers) {
      one.write(name, tensor, /*is_buffer=*/true);
    }
    all.write(absl::StrCat(index), one);
  }
  module->write("layers", all);
}

// Returns the value at `key`, or None if there is none.
c10::IValue Value(InputArchive& archive, const std::string& key) {
  c10::IValue value;
  archive.try_read(key, value);
  return value;
}

// Returns the tensor named `name`, or an undefined tensor. One that reaches
// beyond its memory (LibTorch does not look) is left out, too. Its memory is
// the archive's, which other tensors may share.
at::Tensor ReadTensor(InputArchive& root, const std::string& name) {
  const std::vector<std::string> path = SplitName(name);
  std::vector<InputArchive> opened(path.size() - 1);
  InputArchive* archive = &root;
  for (size_t depth = 0; depth + 1 < path.size(); ++depth) {
    if (!archive->try_read(path[depth], opened[depth])) return {};
    archive = &opened[depth];
  }
  at::Tensor tensor;
  if (!archive->try_read(path.back(), tensor)) return {};
  if (!tensor.defined() || tensor.layout() != at::kStrided ||
      !tensor.is_contiguous() || tensor.storage_offset() < 0) {
    return {};
  }
  // No sum or product here: a file may have any sizes.
  const auto held =
      static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  if (tensor.storage_offset() > held ||
      tensor.numel() > held - tensor.storage_offset()) {
    return {};
  }
  return tensor.detach();
}

absl::Status CheckNameCount(size_t names, int64_t classes) {
  if (names == 0 || static_cast<int64_t>(names) == classes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there are ", names, " names for ", classes, " classes"));
}

absl::Status CheckClassName(const std::string& name) {
  if (name.size() <= kMaxClassNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a class has a name of more than ", kMaxClassNameBytes, " bytes"));
}

absl::Status CheckClassNames(const GanModel& model) {
  MR_RETURN_IF_ERROR(CheckNameCount(model.class_names.size(), model.classes));
  for (const std::string& name : model.class_names) {
    MR_RETURN_IF_ERROR(CheckClassName(name));
  }
  return absl::OkStatus();
}

absl::Status CheckModel(const GanModel& model, absl::string_view whose) {
  MR_RETURN_IF_ERROR(Annotate(ValidateGanSizes(model.sizes()), whose));
  MR_RETURN_IF_ERROR(Annotate(CheckClassNames(model), whose));
  return CheckTensors(GanTensors(model.network, model.sizes()), model.weights,
                      whose);
}

// Reads what version 2 has besides. Looks before it copies: a small file can
// refer to one long name many times.
absl::Status ParseClasses(InputArchive& archive, GanModel* model) {
  const c10::IValue architecture = Value(archive, "architecture");
  const c10::IValue classes = Value(archive, "classes");
  const c10::IValue names = Value(archive, "class_names");
  if (!architecture.isString() || !classes.isInt() || !names.isList()) {
    return absl::DataLossError(
        "its architecture, classes or class_names are missing");
  }
  MR_ASSIGN_OR_RETURN(model->architecture,
                      ParseGanArchitecture(architecture.toStringRef()));
  model->classes = classes.toInt();
  MR_RETURN_IF_ERROR(ValidateGanSizes(model->sizes()));
  const c10::ArrayRef<c10::IValue> list = names.toListRef();
  MR_RETURN_IF_ERROR(CheckNameCount(list.size(), model->classes));
  for (const c10::IValue& name : list) {
    if (!name.isString()) {
      return absl::DataLossError("its class_names are no strings");
    }
    MR_RETURN_IF_ERROR(CheckClassName(name.toStringRef()));
    model->class_names.push_back(name.toStringRef());
  }
  return absl::OkStatus();
}

// May throw what LibTorch throws.
absl::StatusOr<GanModel> Parse(const std::string& bytes, GanNetwork network) {
  InputArchive archive;
  archive.load_from(bytes.data(), bytes.size(), torch::Device(torch::kCPU));

  const c10::IValue format = Value(archive, "format");
  if (!format.isString() || format.toStringRef() != Format(network)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it holds ",
        format.isString()
            ? absl::StrCat("'",
                           absl::Utf8SafeCHexEscape(
                               absl::string_view(format.toStringRef())
                                   .substr(0, kTextInMessage)),
                           "'")
            : "something else",
        "; expected '", Format(network), "'"));
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
  const c10::IValue latent_dim = Value(archive, "latent_dim");
  const c10::IValue shape = Value(archive, "image_shape");
  if (!latent_dim.isInt() || !shape.isIntList() ||
      shape.toIntVector().size() != 3) {
    return absl::DataLossError("its latent_dim or image_shape is missing");
  }
  const std::vector<int64_t> sizes = shape.toIntVector();
  GanModel model = {.network = network,
                    .latent_dim = latent_dim.toInt(),
                    .shape = {sizes[0], sizes[1], sizes[2]}};
  if (version.toInt() >= 2) MR_RETURN_IF_ERROR(ParseClasses(archive, &model));
  MR_RETURN_IF_ERROR(ValidateGanSizes(model.sizes()));

  InputArchive module;
  if (!archive.try_read(ModuleKey(network), module)) {
    return absl::DataLossError(
        absl::StrCat("it has no module '", ModuleKey(network), "'"));
  }
  for (const TensorSpec& spec : GanTensors(network, model.sizes())) {
    model.weights.emplace_back(spec.name, ReadTensor(module, spec.name));
  }
  const absl::Status fits = CheckModel(model, "its weights");
  if (!fits.ok()) return absl::DataLossError(fits.message());
  // Only now: as large as the sizes say, and no two in the same memory.
  for (auto& [name, tensor] : model.weights) tensor = tensor.clone();
  return model;
}

}  // namespace

absl::StatusOr<int64_t> FindClass(const GanModel& model,
                                  absl::string_view name) {
  if (model.classes == 0) {
    return absl::FailedPreconditionError(
        "the model has no classes; train one with --conditional");
  }
  for (size_t i = 0; i < model.class_names.size(); ++i) {
    if (model.class_names[i] == name) return static_cast<int64_t>(i);
  }
  int64_t label = 0;
  if (absl::SimpleAtoi(name, &label) && label >= 0 && label < model.classes) {
    return label;
  }
  std::string known = absl::StrCat("0 to ", model.classes - 1);
  if (!model.class_names.empty()) {
    const size_t shown = std::min(kNamesInMessage, model.class_names.size());
    absl::StrAppend(
        &known, " or one of ",
        absl::StrJoin(model.class_names.begin(),
                      model.class_names.begin() + static_cast<int64_t>(shown),
                      ", "),
        shown < model.class_names.size() ? ", ..." : "");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the model has no class '", name, "'; expected ",
                   absl::Utf8SafeCHexEscape(known)));
}

absl::StatusOr<std::string> SerializeGanModel(const GanModel& model) {
  MR_RETURN_IF_ERROR(CheckModel(model, "cannot save the model"));
  try {
    OutputArchive archive;
    archive.write("format", c10::IValue(Format(model.network)));
    // What programs before version 2 can use, they can read.
    const bool is_plain =
        model.architecture == GanArchitecture::kMlp && model.classes == 0;
    archive.write("version", c10::IValue(is_plain ? int64_t{1} : kVersion));
    archive.write("latent_dim", c10::IValue(model.latent_dim));
    archive.write("image_shape", c10::IValue(std::vector<int64_t>{
                                     model.shape.channels, model.shape.height,
                                     model.shape.width}));
    if (!is_plain) {
      archive.write(
          "architecture",
          c10::IValue(std::string(GanArchitectureName(model.architecture))));
      archive.write("classes", c10::IValue(model.classes));
      archive.write("class_names", c10::IValue(model.class_names));
    }
    OutputArchive module(archive.compilation_unit());
    WriteModule(model, &module);
    archive.write(ModuleKey(model.network), module);
    std::ostringstream bytes;
    archive.save_to(bytes);
    return std::move(bytes).str();
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat("LibTorch could not write the model: ", FirstLine(error)));
  }
}

absl::Status SaveGanModel(const std::string& path, const GanModel& model) {
  MR_ASSIGN_OR_RETURN(const std::string bytes, SerializeGanModel(model));
  return WriteOutput(path, bytes);
}

absl::StatusOr<GanModel> ParseGanModel(const std::string& bytes,
                                       GanNetwork network,
                                       absl::string_view name) {
  const std::string context = absl::StrCat(
      name, ": not a ", GanNetworkName(network), " that `train` saved");
  MR_RETURN_IF_ERROR(Annotate(CheckZipArchive(bytes), context));
  try {
    absl::StatusOr<GanModel> model = Parse(bytes, network);
    if (!model.ok()) return Annotate(model.status(), context);
    return model;
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(context, ": LibTorch cannot read it: ", FirstLine(error)));
  }
}

absl::StatusOr<std::string> ReadModelFile(const std::string& path) {
  // Opening a pipe would wait for its writer.
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status)) {
    if (!std::filesystem::is_regular_file(status)) {
      return absl::FailedPreconditionError(
          absl::StrCat(path,
                       ": not a regular file; expected a model that "
                       "`train` saved, such as generator.pt"));
    }
    const auto size = std::filesystem::file_size(path, error);
    if (!error && size > kMaxModelFileBytes) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": ", size, " bytes; a model has at most ",
                       kMaxModelFileBytes));
    }
  }
  return ReadFile(path);
}

absl::StatusOr<GanModel> LoadGanModel(const std::string& path,
                                      GanNetwork network) {
  MR_ASSIGN_OR_RETURN(const std::string bytes, ReadModelFile(path));
  return ParseGanModel(bytes, network, path);
}

}  // namespace miniray::ml
