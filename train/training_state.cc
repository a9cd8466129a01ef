#include "train/training_state.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/Context.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"
#include "runtime/wire/codec.h"
#include "torch/csrc/autograd/function.h"
#include "torch/csrc/autograd/variable.h"
#include "torch/serialize/input-archive.h"
#include "torch/serialize/output-archive.h"

namespace miniray::train {
namespace {

using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

constexpr char kTraining[] = "training.pt";
constexpr char kExtras[] = "extras";

// Entries of training.pt.
constexpr char kDefaultGenerator[] = "default_generator";

std::string GpuGeneratorKey(const c10::Device& gpu) {
  return absl::StrCat("default_generator_cuda_", int{gpu.index()});
}

std::string OptimizerKey(const std::string& name) {
  return absl::StrCat("optimizer_", name);
}
std::string OptionsKey(const std::string& name, size_t group) {
  return absl::StrCat("options_", group, "_", name);
}
std::string GeneratorKey(const std::string& name) {
  return absl::StrCat("generator_", name);
}
std::string ModelFile(const std::string& name) { return name + ".pt"; }

// The generator's state, uint8 [N].
at::Tensor StateOf(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void SetStateOf(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

// Where an optimizer's parameters are, and so its state.
c10::Device DeviceOf(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      return parameter.device();
    }
  }
  return c10::Device(c10::kCPU);
}

// The CUDA devices on which the parts are. Their default generators count too:
// dropout on a GPU asks them.
std::vector<c10::Device> GpusOf(const TrainingParts& parts) {
  std::vector<c10::Device> gpus;
  const auto add = [&gpus](const c10::Device& device) {
    if (device.is_cuda() &&
        std::find(gpus.begin(), gpus.end(), device) == gpus.end()) {
      gpus.push_back(device);
    }
  };
  for (const auto& [name, model] : parts.models) {
    for (const at::Tensor& tensor : model->parameters()) add(tensor.device());
  }
  for (const auto& [name, optimizer] : parts.optimizers) {
    add(DeviceOf(*optimizer));
  }
  return gpus;
}

at::Generator DefaultGenerator(const c10::Device& gpu) {
  return at::globalContext().defaultGenerator(gpu);
}

std::string BytesOf(OutputArchive& archive) {
  std::ostringstream bytes;
  archive.save_to(bytes);
  return std::move(bytes).str();
}

absl::StatusOr<absl::string_view> FileOf(const CheckpointFiles& files,
                                         const std::string& name) {
  const auto found = files.find(name);
  if (found != files.end()) return found->second;
  return absl::InvalidArgumentError(
      absl::StrCat("the checkpoint has no file '", name, "' of this worker"));
}

// Calls `load` with the file's archive, whose tensors are on `device` wherever
// they were saved; what it throws is about the file.
template <class Load>
absl::Status LoadFile(const CheckpointFiles& files, const std::string& name,
                      c10::Device device, Load load) {
  MR_ASSIGN_OR_RETURN(const absl::string_view bytes, FileOf(files, name));
  try {
    InputArchive archive;
    archive.load_from(bytes.data(), bytes.size(), device);
    load(archive);
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the checkpoint's file '", name, "' does not fit: ", error.what()));
  }
}

// What a module has read lies elsewhere; this puts it where the module's own
// tensors were, `before`.
void MoveBack(const std::vector<at::Tensor>& tensors,
              const std::vector<at::Tensor>& before) {
  const torch::NoGradGuard no_grad;
  std::string misfit;
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor tensor = tensors[i];
    if (tensor.sizes() != before[i].sizes() ||
        tensor.scalar_type() != before[i].scalar_type()) {
      misfit = absl::StrCat("it has a tensor of shape [",
                            absl::StrJoin(tensor.sizes(), ", "),
                            "] where the module has [",
                            absl::StrJoin(before[i].sizes(), ", "), "]");
    } else {
      at::Tensor(before[i]).copy_(tensor);
    }
    tensor.set_data(before[i]);
  }
  if (!misfit.empty()) throw std::invalid_argument(misfit);
}

// Reading gives a parameter a new gradient accumulator, and whoever has hooks
// on the old one (DistributedModule) would never hear of a gradient again.
// This puts the old ones back at its end.
class KeptAccumulators {
 public:
  explicit KeptAccumulators(const std::vector<at::Tensor>& parameters)
      : parameters_(parameters) {
    for (const at::Tensor& parameter : parameters_) {
      accumulators_.push_back(
          torch::autograd::impl::try_get_grad_accumulator(parameter));
    }
  }
  ~KeptAccumulators() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (accumulators_[i] == nullptr) continue;
      torch::autograd::impl::set_grad_accumulator(parameters_[i],
                                                  accumulators_[i]);
    }
  }
  KeptAccumulators(const KeptAccumulators&) = delete;
  KeptAccumulators& operator=(const KeptAccumulators&) = delete;

 private:
  const std::vector<at::Tensor> parameters_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
};

void ReadModel(InputArchive& archive, torch::nn::Module& model) {
  const KeptAccumulators kept(model.parameters());
  std::vector<at::Tensor> tensors = model.parameters();
  for (const at::Tensor& buffer : model.buffers()) tensors.push_back(buffer);
  std::vector<at::Tensor> before;
  for (const at::Tensor& tensor : tensors) before.push_back(tensor.detach());
  model.load(archive);
  MoveBack(tensors, before);
}

void WriteTraining(const TrainingParts& parts, OutputArchive& archive) {
  archive.write(kDefaultGenerator,
                StateOf(at::detail::getDefaultCPUGenerator()));
  for (const c10::Device& gpu : GpusOf(parts)) {
    archive.write(GpuGeneratorKey(gpu), StateOf(DefaultGenerator(gpu)));
  }
  for (const auto& [name, generator] : parts.generators) {
    archive.write(GeneratorKey(name), StateOf(generator));
  }
  for (const auto& [name, optimizer] : parts.optimizers) {
    OutputArchive of_optimizer(archive.compilation_unit());
    optimizer->save(of_optimizer);
    archive.write(OptimizerKey(name), of_optimizer);
    // Those that an optimizer writes itself, it does not read.
    for (size_t i = 0; i < optimizer->param_groups().size(); ++i) {
      OutputArchive of_options(archive.compilation_unit());
      optimizer->param_groups()[i].options().serialize(of_options);
      archive.write(OptionsKey(name, i), of_options);
    }
  }
}

// Of the optimizers on `device`, where the archive's tensors are.
void ReadOptimizers(InputArchive& archive, const TrainingParts& parts,
                    c10::Device device) {
  for (const auto& [name, optimizer] : parts.optimizers) {
    if (DeviceOf(*optimizer) != device) continue;
    InputArchive of_optimizer;
    archive.read(OptimizerKey(name), of_optimizer);
    optimizer->load(of_optimizer);
    for (size_t i = 0; i < optimizer->param_groups().size(); ++i) {
      InputArchive of_options;
      archive.read(OptionsKey(name, i), of_options);
      optimizer->param_groups()[i].options().serialize(of_options);
    }
  }
}

void ReadGenerators(InputArchive& archive, const TrainingParts& parts) {
  at::Tensor state;
  for (const auto& [name, generator] : parts.generators) {
    archive.read(GeneratorKey(name), state);
    SetStateOf(generator, state);
  }
  archive.read(kDefaultGenerator, state);
  SetStateOf(at::detail::getDefaultCPUGenerator(), state);
  for (const c10::Device& gpu : GpusOf(parts)) {
    // None, where the parts were on another device.
    if (archive.try_read(GpuGeneratorKey(gpu), state)) {
      SetStateOf(DefaultGenerator(gpu), state);
    }
  }
}

}  // namespace

absl::StatusOr<CheckpointFiles> SaveTraining(const TrainingParts& parts,
                                             const ps::OptionMap& extras) {
  CheckpointFiles files;
  try {
    for (const auto& [name, model] : parts.models) {
      OutputArchive archive;
      model->save(archive);
      files[ModelFile(name)] = BytesOf(archive);
    }
    if (files.contains(kTraining)) {
      return absl::InvalidArgumentError(
          "a model cannot be called 'training': its file would be that of the "
          "optimizers");
    }
    OutputArchive archive;
    WriteTraining(parts, archive);
    files[kTraining] = BytesOf(archive);
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat("the worker's state cannot be saved: ", error.what()));
  }
  MR_ASSIGN_OR_RETURN(const absl::Cord encoded, EncodeValue(extras));
  files[kExtras] = std::string(encoded);
  return files;
}

absl::StatusOr<ps::OptionMap> LoadTraining(const CheckpointFiles& files,
                                           const TrainingParts& parts) {
  for (const auto& [name, model] : parts.models) {
    MR_RETURN_IF_ERROR(LoadFile(files, ModelFile(name), c10::kCPU,
                                [model = model](InputArchive& archive) {
                                  ReadModel(archive, *model);
                                }));
  }
  MR_RETURN_IF_ERROR(
      LoadFile(files, kTraining, c10::kCPU, [&parts](InputArchive& archive) {
        ReadOptimizers(archive, parts, c10::kCPU);
        ReadGenerators(archive, parts);
      }));
  for (const c10::Device& gpu : GpusOf(parts)) {
    MR_RETURN_IF_ERROR(
        LoadFile(files, kTraining, gpu, [&parts, gpu](InputArchive& archive) {
          ReadOptimizers(archive, parts, gpu);
        }));
  }
  MR_ASSIGN_OR_RETURN(const absl::string_view encoded, FileOf(files, kExtras));
  ps::OptionMap extras;
  MR_RETURN_IF_ERROR(Annotate(DecodeValue(absl::Cord(encoded), &extras),
                              "the checkpoint's file 'extras' does not fit"));
  return extras;
}

}  // namespace miniray::train
