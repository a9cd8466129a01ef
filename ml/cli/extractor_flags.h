// The flags of programs that compare images by features: --features,
// --fid-features, --fid-size and --fid-range.

#ifndef MINIRAY_ML_CLI_EXTRACTOR_FLAGS_H_
#define MINIRAY_ML_CLI_EXTRACTOR_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ml/metrics/feature_extractor.h"

namespace miniray::ml {

// For ProgramHelp::groups: the names of the two files' flags, one of which is
// to be given, and of those about the input of a TorchScript file.
std::vector<std::string> ExtractorFileFlags();
std::vector<std::string> ExtractorInputFlags();

// Checks what can be checked without a file.
//
// Errors: INVALID_ARGUMENT, with the flag: not one of the two files, a size or
// a range that cannot be, or one of these with a classifier, which has its own.
absl::Status CheckExtractorFlags();

// Reads the file that is given. REQUIRES: CheckExtractorFlags was OK.
// Errors: those of ReadExtractorFile.
absl::StatusOr<ExtractorFile> ExtractorFileFromFlags();

// Whether what is given is a classifier, whose distances are no FID.
bool ExtractorIsClassifier();

}  // namespace miniray::ml

#endif  // MINIRAY_ML_CLI_EXTRACTOR_FLAGS_H_
