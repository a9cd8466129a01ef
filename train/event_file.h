// Scalars and images over time, in a file that TensorBoard opens.

#ifndef MINIRAY_TRAIN_EVENT_FILE_H_
#define MINIRAY_TRAIN_EVENT_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "train/appended_file.h"

namespace miniray::train {

// Not thread-safe. Movable.
//
// The format is TFRecord, around the messages of tensorboard_event.proto: of
// each record its length (uint64, little-endian), the length's masked CRC-32C,
// the bytes, and their masked CRC-32C. A CRC c is masked as
// ((c >> 15) | (c << 17)) + 0xa282ead8.
// Source: tensorflow/core/lib/io/record_writer.cc.
class EventFile {
 public:
  // Creates `folder`/events.out.tfevents.<now in seconds>.<host>.
  static absl::StatusOr<EventFile> Create(const std::string& folder,
                                          absl::Time now);

  // Training goes on with this step: TensorBoard forgets what the folder's
  // files have of it and of later ones. Errors: see AppendedFile::Append.
  absl::Status AddStart(int64_t step, absl::Time time);

  // Adds one point to the chart of each tag. Errors: see AppendedFile::Append.
  absl::Status AddScalars(int64_t step, absl::Time time,
                          const std::map<std::string, double>& scalars);

  // Adds an image to those of this tag. png: a PNG of so many pixels. Errors:
  // see AppendedFile::Append; where what came before could not be written yet,
  // the image is left out: a full disk shall not fill the memory.
  absl::Status AddImage(int64_t step, absl::Time time, const std::string& tag,
                        const std::string& png, int width, int height);

  absl::Status Flush() { return file_.Flush(); }

 private:
  explicit EventFile(AppendedFile file) : file_(std::move(file)) {}

  AppendedFile file_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_EVENT_FILE_H_
