#include "ml/cli/blas_check.h"

#include <link.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace miniray::ml {
namespace {

constexpr char kRemedy[] = "apt-get install libopenblas0-openmp";

int AddPath(struct dl_phdr_info* info, size_t size, void* data) {
  if (info->dlpi_name != nullptr && info->dlpi_name[0] != '\0') {
    std::error_code error;
    const auto path = std::filesystem::canonical(info->dlpi_name, error);
    // The kernel's own object has no file.
    if (!error) {
      static_cast<std::vector<std::string>*>(data)->push_back(path.string());
    }
  }
  return 0;
}

}  // namespace

std::vector<std::string> LoadedLibraries() {
  std::vector<std::string> paths;
  dl_iterate_phdr(&AddPath, &paths);
  return paths;
}

std::string BlasWarningFor(absl::Span<const std::string> libraries) {
  for (const std::string& library : libraries) {
    const std::filesystem::path path(library);
    if (!absl::StartsWith(path.filename().string(), "libblas.so")) continue;
    if (absl::StrContains(library, "openblas-pthread")) {
      return absl::StrCat(
          "warning: ", library,
          " is the build of OpenBLAS that uses every core whatever --threads "
          "says; ",
          kRemedy);
    }
    // The others that Debian has, as folders beside the reference BLAS's.
    for (const char* fast : {"openblas", "blis", "mkl", "atlas"}) {
      if (absl::StrContains(library, fast)) return "";
    }
    return absl::StrCat("warning: ", library,
                        " is the reference BLAS, with which training takes 20 "
                        "times as long as with OpenBLAS; ",
                        kRemedy);
  }
  return "";
}

std::string BlasWarning() { return BlasWarningFor(LoadedLibraries()); }

}  // namespace miniray::ml
