// RecordReader: a file format that Dataset::FromFiles streams.
//
//   class WavReader : public train::RecordReader {
//    public:
//     static absl::StatusOr<std::unique_ptr<train::RecordReader>> Open(
//         const std::string& path);
//     absl::StatusOr<std::optional<train::Row>> Next() override;
//     ...
//   };
//   MINIRAY_RECORD_READER("wav", {.open = &WavReader::Open});
//
//   train::Dataset::FromFiles(paths, "wav", {.columns = {"samples", "label"}})
//
// The name is how a data set that a driver made finds the reader in the
// processes that train: they run the same program.

#ifndef MINIRAY_TRAIN_DATA_RECORD_READER_H_
#define MINIRAY_TRAIN_DATA_RECORD_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/data/row.h"

namespace miniray::train {

// Reads the records of one file, front to back. A file must give the same
// records each time. Each is used by one thread at a time, and not always by
// the one that made it. Exceptions are errors too, INTERNAL.
class RecordReader {
 public:
  virtual ~RecordReader() = default;

  // Returns the next record; nothing at the end of the file.
  virtual absl::StatusOr<std::optional<Row>> Next() = 0;

  // Passes over `count` records, of which there are so many. Reads them, unless
  // overridden: do where the format allows a seek.
  virtual absl::Status Skip(int64_t count);
};

// How the files of a format are read. Both functions are called from any
// thread.
struct RecordFormat {
  // Opens a file at its first record.
  std::function<absl::StatusOr<std::unique_ptr<RecordReader>>(
      const std::string& path)>
      open;
  // Returns how many records a file has. Without it they are counted by reading
  // the file through, once, when the data set is made.
  std::function<absl::StatusOr<int64_t>(const std::string& path)> count;
};

// Makes `format` known in this program as `name`. Errors: INVALID_ARGUMENT, an
// empty name or no open function. ALREADY_EXISTS. Thread-safe.
absl::Status RegisterRecordFormat(const std::string& name, RecordFormat format);

// Errors: NOT_FOUND, with the names that there are. Thread-safe.
absl::StatusOr<RecordFormat> FindRecordFormat(const std::string& name);

namespace internal {

// Ends the program, with the reason, where the format cannot be registered.
bool RegisterRecordFormatOrDie(const std::string& name, RecordFormat format);

}  // namespace internal
}  // namespace miniray::train

// At namespace scope of a source file; the format as an initialiser of
// RecordFormat.
#define MINIRAY_RECORD_READER(name, ...)                                   \
  [[maybe_unused]] static const bool MINIRAY_RECORD_READER_(__COUNTER__) = \
      ::miniray::train::internal::RegisterRecordFormatOrDie(               \
          name, ::miniray::train::RecordFormat __VA_ARGS__)
#define MINIRAY_RECORD_READER_(n) MINIRAY_RECORD_READER_2_(n)
#define MINIRAY_RECORD_READER_2_(n) miniray_record_reader_##n

#endif  // MINIRAY_TRAIN_DATA_RECORD_READER_H_
