// Warns of a matrix library that makes training slow.

#ifndef MINIRAY_ML_CLI_BLAS_CHECK_H_
#define MINIRAY_ML_CLI_BLAS_CHECK_H_

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace miniray::ml {

// Debian's LibTorch takes its matrix products from whatever libblas.so.3 is
// selected on the machine. Returns what is wrong with the one that this process
// has loaded and what to do, in one line, or "" if it is fine or LibTorch
// brings its own:
// - the reference BLAS: a training step takes 20 times as long;
// - OpenBLAS's pthread build: it ignores LibTorch's number of threads, so that
//   workers on one machine fight for the cores.
std::string BlasWarning();

// The same for the given libraries: paths of files, links resolved.
std::string BlasWarningFor(absl::Span<const std::string> libraries);

// Returns the paths of the shared objects in this process, links resolved.
std::vector<std::string> LoadedLibraries();

}  // namespace miniray::ml

#endif  // MINIRAY_ML_CLI_BLAS_CHECK_H_
