#include "ml/cli/extractor_flags.h"

#include <cstdint>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"

ABSL_FLAG(std::string, features, "",
          "classifier that ml/examples/classification saved; the result is a "
          "classifier distance");
ABSL_FLAG(std::string, fid_features, "",
          "TorchScript file that maps [N, 3, 299, 299] to [N, F], such as "
          "Inception; the result is a FID");
ABSL_FLAG(int64_t, fid_size, 299, "height and width that it takes");
ABSL_FLAG(std::string, fid_range, "0..1",
          "pixels that it takes: 0..1, -1..1 or 0..255");

namespace miniray::ml {
namespace {

constexpr int64_t kDefaultSize = 299;
constexpr int64_t kMaxSize = 4096;
constexpr char kDefaultRange[] = "0..1";

absl::Status NeedsModule(absl::string_view flag) {
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " has no effect without --fid-features; add it"));
}

}  // namespace

std::vector<std::string> ExtractorFileFlags() {
  return {"features", "fid_features"};
}

std::vector<std::string> ExtractorInputFlags() {
  return {"fid_size", "fid_range"};
}

absl::Status CheckExtractorFlags() {
  const bool module = !absl::GetFlag(FLAGS_fid_features).empty();
  if (module == !absl::GetFlag(FLAGS_features).empty()) {
    return absl::InvalidArgumentError(
        "one of --features (a classifier that ml/examples/classification "
        "saved with --save) and --fid-features (a TorchScript file) is "
        "required");
  }
  const int64_t size = absl::GetFlag(FLAGS_fid_size);
  const std::string range = absl::GetFlag(FLAGS_fid_range);
  if (!module && size != kDefaultSize) return NeedsModule("--fid-size");
  if (!module && range != kDefaultRange) return NeedsModule("--fid-range");
  if (size < 1 || size > kMaxSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("--fid-size is ", size, "; expected 1 to ", kMaxSize));
  }
  if (range != "0..1" && range != "-1..1" && range != "0..255") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--fid-range is '", range, "'; expected 0..1, -1..1 or 0..255"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExtractorFile> ExtractorFileFromFlags() {
  MR_ASSIGN_OR_RETURN(
      ExtractorFile file,
      ExtractorIsClassifier()
          ? ReadExtractorFile("classifier", absl::GetFlag(FLAGS_features))
          : ReadExtractorFile("torchscript",
                              absl::GetFlag(FLAGS_fid_features)));
  file.size = absl::GetFlag(FLAGS_fid_size);
  file.range = absl::GetFlag(FLAGS_fid_range);
  return file;
}

bool ExtractorIsClassifier() { return !absl::GetFlag(FLAGS_features).empty(); }

}  // namespace miniray::ml
