// Reads one data file front to back, plain or gzip.

#ifndef MINIRAY_ML_DATA_BYTE_SOURCE_H_
#define MINIRAY_ML_DATA_BYTE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace miniray::ml {

// A forward-only reader that never trusts what a file says about itself. Gzip
// is recognised by its first two bytes, not by the file's name; offsets then
// count decompressed bytes, and errors say so. Checksums of gzip data are
// verified when the end is reached, so callers finish with ExpectEnd.
//
// Not thread-safe.
class ByteSource {
 public:
  // Errors: NotFound or PermissionDenied from the system; FailedPrecondition
  // if the path is not a regular file (a pipe could block for ever).
  static absl::StatusOr<std::unique_ptr<ByteSource>> Open(std::string path);

  virtual ~ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  const std::string& path() const { return path_; }

  // Position in the contents.
  int64_t offset() const { return offset_; }

  // Content bytes that can still follow. Exact for a plain file; for gzip an
  // upper bound from the file's size and deflate's best possible ratio. Compare
  // with it before allocating what a header asks for.
  virtual int64_t max_remaining() const = 0;
  virtual bool compressed() const = 0;

  // Reads exactly `size` bytes to `out`. `what` names them in the error.
  // Errors: DataLoss if the file ends early or its gzip data are damaged.
  absl::Status Read(void* out, int64_t size, absl::string_view what);

  // Passes over `size` bytes; errors as Read.
  virtual absl::Status Skip(int64_t size, absl::string_view what);

  // Reads whatever follows, so that a gzip checksum is verified.
  // Errors: DataLoss if gzip data are damaged or end early.
  absl::Status SkipToEnd();

  // Errors: DataLoss if bytes follow. `what` says what should have been last.
  absl::Status ExpectEnd(absl::string_view what);

  // Returns DataLoss "PATH: at byte AT: PROBLEM".
  absl::Status ErrorAt(int64_t at, absl::string_view problem) const;

 protected:
  explicit ByteSource(std::string path) : path_(std::move(path)) {}

  // Reads at least one and at most `size` bytes; 0 at a proper end.
  virtual absl::StatusOr<int64_t> ReadSome(void* out, int64_t size) = 0;

  void Advance(int64_t bytes) { offset_ += bytes; }

 private:
  const std::string path_;
  int64_t offset_ = 0;
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_BYTE_SOURCE_H_
