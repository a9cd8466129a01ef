#include "ps/compression/compression.h"

#include "absl/strings/str_cat.h"

namespace miniray::ps {
namespace {

constexpr double kMaxFraction = 0.5;

}  // namespace

absl::Status Validate(const CompressionOptions& options,
                      absl::string_view who) {
  switch (options.method) {
    case Compression::kNone:
    case Compression::kFp16:
    case Compression::kBf16:
    case Compression::kInt8:
      return absl::OkStatus();
    case Compression::kTopK:
      if (options.top_k_fraction > 0 &&
          options.top_k_fraction <= kMaxFraction) {
        return absl::OkStatus();
      }
      return absl::InvalidArgumentError(absl::StrCat(
          who, ".top_k_fraction = ", options.top_k_fraction,
          ": must be above 0, and at most ", kMaxFraction,
          ", since a value takes 6 bytes with its place and 4 without"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(who, ".method = ", static_cast<int>(options.method),
                   ": there is no such compression"));
}

std::string ToString(const CompressionOptions& options) {
  switch (options.method) {
    case Compression::kNone:
      return "none";
    case Compression::kFp16:
      return "fp16";
    case Compression::kBf16:
      return "bf16";
    case Compression::kInt8:
      return "int8";
    case Compression::kTopK:
      return absl::StrCat("top_k(", options.top_k_fraction, ")");
  }
  return absl::StrCat("compression ", static_cast<int>(options.method));
}

}  // namespace miniray::ps
