// Sends a file to the head as a package.

#ifndef MINIRAY_RUNTIME_PACKAGES_UPLOAD_H_
#define MINIRAY_RUNTIME_PACKAGES_UPLOAD_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/head.grpc.pb.h"

namespace miniray {

// Sends `path`, whose SHA-256 is `package_id`, unless the head has it already.
// Errors: of the head (UNAVAILABLE: it does not answer; DEADLINE_EXCEEDED: not
// in time) and of reading the file; DATA_LOSS, the file's bytes have another
// hash by now.
absl::Status UploadPackage(v1::Head::Stub* stub, const std::string& token,
                           const std::string& path,
                           const std::string& package_id,
                           absl::Time deadline = absl::InfiniteFuture());

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_PACKAGES_UPLOAD_H_
