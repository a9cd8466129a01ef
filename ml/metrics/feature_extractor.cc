#include "ml/metrics/feature_extractor.h"

#include <array>
#include <exception>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

#include "ATen/ops/upsample_bilinear2d.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ml/classify/classifier.h"
#include "ml/classify/classifier_file.h"
#include "ml/data/describe_tensor.h"
#include "ml/data/exception_text.h"
#include "ml/data/image_dataset.h"
#include "ml/gan/zip_check.h"
#include "ml/metrics/statistics_cache.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "torch/script.h"

namespace miniray::ml {
namespace {

constexpr char kClassifier[] = "classifier";
constexpr char kTorchScript[] = "torchscript";
constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
constexpr int64_t kMaxSize = 4096;

// Returns the line that says what is wrong: of an error of the interpreter the
// last one, behind a trace of the script.
std::string ScriptError(const std::exception& error) {
  const std::string text = error.what();
  if (!absl::StartsWith(text, "The following operation failed in the Torch")) {
    return FirstLine(error);
  }
  const absl::string_view last = absl::StripTrailingAsciiWhitespace(text);
  return std::string(last.substr(last.rfind('\n') + 1));
}

std::string FileName(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

absl::Status CheckImages(const at::Tensor& images) {
  if (images.defined() && images.scalar_type() == at::kByte &&
      images.dim() == 4 && images.numel() > 0 && images.device().is_cpu() &&
      (images.size(1) == 1 || images.size(1) == 3)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("images are ", DescribeTensor(images),
                   "; expected uint8 [N, C, H, W] on the CPU with C = 1 or 3"));
}

class ClassifierExtractor : public FeatureExtractor {
 public:
  static absl::StatusOr<std::unique_ptr<FeatureExtractor>> Create(
      const ExtractorFile& file) {
    MR_ASSIGN_OR_RETURN(const SavedClassifier saved,
                        ParseClassifier(file.bytes, file.name));
    absl::StatusOr<std::unique_ptr<Classifier>> classifier =
        MakeClassifier(saved, "cpu");
    if (!classifier.ok()) return Annotate(classifier.status(), file.name);
    return std::make_unique<ClassifierExtractor>(
        absl::StrCat("classifier distance (", saved.network, ", trained on ",
                     saved.dataset, ")"),
        *std::move(classifier));
  }

  ClassifierExtractor(std::string distance_name,
                      std::unique_ptr<Classifier> classifier)
      : distance_name_(std::move(distance_name)),
        classifier_(std::move(classifier)) {}

  absl::StatusOr<at::Tensor> Extract(const at::Tensor& images) override {
    MR_RETURN_IF_ERROR(CheckImages(images));
    try {
      return classifier_->Features(images);
    } catch (const std::exception& error) {
      return absl::InternalError(
          absl::StrCat("the classifier fails: ", FirstLine(error)));
    }
  }

  std::string DistanceName() const override { return distance_name_; }

 private:
  const std::string distance_name_;
  const std::unique_ptr<Classifier> classifier_;
};

class TorchScriptExtractor : public FeatureExtractor {
 public:
  static absl::StatusOr<std::unique_ptr<FeatureExtractor>> Create(
      const ExtractorFile& file) {
    if (file.size < 1 || file.size > kMaxSize) {
      return absl::InvalidArgumentError(
          absl::StrCat("an extractor of images of ", file.size,
                       " pixels a side; expected 1 to ", kMaxSize));
    }
    if (file.range != "0..1" && file.range != "-1..1" &&
        file.range != "0..255") {
      return absl::InvalidArgumentError(
          absl::StrCat("an extractor of pixels of '", file.range,
                       "'; expected 0..1, -1..1 or 0..255"));
    }
    const std::string context =
        absl::StrCat(file.name, ": not a TorchScript module");
    MR_RETURN_IF_ERROR(Annotate(CheckZipArchive(file.bytes), context));
    std::unique_ptr<TorchScriptExtractor> extractor;
    try {
      std::istringstream stream(file.bytes);
      torch::jit::Module module = torch::jit::load(stream, at::kCPU);
      module.eval();
      extractor =
          std::make_unique<TorchScriptExtractor>(file, std::move(module));
    } catch (const std::exception& error) {
      return absl::InvalidArgumentError(absl::StrCat(
          context, ": LibTorch cannot read it: ", FirstLine(error)));
    }
    // A module that does not fit is found before images are made.
    const absl::Status fits =
        extractor->Extract(at::zeros({2, 3, file.size, file.size}, at::kByte))
            .status();
    if (!fits.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.name, ": ", fits.message()));
    }
    return extractor;
  }

  TorchScriptExtractor(const ExtractorFile& file, torch::jit::Module module)
      : name_(FileName(file.name)),
        size_(file.size),
        range_(file.range),
        module_(std::move(module)) {}

  absl::StatusOr<at::Tensor> Extract(const at::Tensor& images) override {
    MR_RETURN_IF_ERROR(CheckImages(images));
    try {
      return Run(Prepare(images));
    } catch (const std::exception& error) {
      return absl::InternalError(absl::StrCat(
          "the module fails on float32 [", images.size(0), ", 3, ", size_, ", ",
          size_, "], which it has to take: ", ScriptError(error)));
    }
  }

  std::string DistanceName() const override {
    return absl::StrCat("FID (inception file ", name_, ")");
  }

 private:
  // Returns float32 [N, 3, size, size] in the module's range.
  at::Tensor Prepare(const at::Tensor& images) const {
    at::Tensor x = images.to(at::kFloat);
    if (x.size(1) == 1) x = x.expand({-1, 3, -1, -1});
    if (x.size(2) != size_ || x.size(3) != size_) {
      const std::array<int64_t, 2> sides = {size_, size_};
      x = at::upsample_bilinear2d(x, sides, /*align_corners=*/false);
    }
    if (range_ == "0..1") return x / 255.0;
    if (range_ == "-1..1") return x / 127.5 - 1.0;
    return x.contiguous();
  }

  absl::StatusOr<at::Tensor> Run(const at::Tensor& x) {
    const torch::NoGradGuard no_grad;
    const c10::IValue out = module_.forward({x});
    const std::string expected =
        absl::StrCat("; expected floating [", x.size(0), ", F] for float32 [",
                     x.size(0), ", 3, ", size_, ", ", size_,
                     "]: save one that ends with the features, flattened");
    if (!out.isTensor()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the module returns a value of type ", out.tagKind(), expected));
    }
    const at::Tensor features = out.toTensor();
    if (!features.defined() || !features.is_floating_point() ||
        features.dim() != 2 || features.size(0) != x.size(0) ||
        features.size(1) < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the module returns ", DescribeTensor(features), expected));
    }
    return features.to(at::kCPU, at::kFloat);
  }

  const std::string name_;
  const int64_t size_;
  const std::string range_;
  torch::jit::Module module_;
};

}  // namespace

absl::StatusOr<ExtractorFile> ReadExtractorFile(const std::string& kind,
                                                const std::string& path) {
  // Opening a pipe would wait for its writer.
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status)) {
    if (!std::filesystem::is_regular_file(status)) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": not a regular file; expected a ", kind));
    }
    const auto size = std::filesystem::file_size(path, error);
    if (!error && size > kMaxFileBytes) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, ": ", size, " bytes; expected at most ", kMaxFileBytes));
    }
  }
  ExtractorFile file = {.kind = kind, .name = path};
  MR_ASSIGN_OR_RETURN(file.bytes, ReadFile(path));
  return file;
}

std::string ExtractorIdentity(const ExtractorFile& file) {
  const std::string input =
      file.kind == kTorchScript
          ? absl::StrCat(" of ", file.size, " pixels in ", file.range)
          : "";
  return absl::StrCat(file.kind, " ", Sha256(file.bytes), input);
}

absl::StatusOr<std::unique_ptr<FeatureExtractor>> FeatureExtractor::Create(
    const ExtractorFile& file) {
  if (file.kind == kClassifier) return ClassifierExtractor::Create(file);
  if (file.kind == kTorchScript) return TorchScriptExtractor::Create(file);
  return absl::InvalidArgumentError(
      absl::StrCat("an extractor of the kind '", file.kind,
                   "'; expected classifier or torchscript"));
}

}  // namespace miniray::ml
