// Reads a tar archive front to back: the members' names and sizes, and where
// their bytes are.
//
// Knows the ustar format, as POSIX has it and as GNU tar writes it, GNU's long
// names ('L') and pax headers ('x', of which it takes path and size). Numbers
// have to be octal, which is enough for members up to 8 GiB.
//
// Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Interchange
// Format"; GNU tar manual, "Basic Tar Format".

#ifndef MINIRAY_ML_DATA_TAR_READER_H_
#define MINIRAY_ML_DATA_TAR_READER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ml/data/byte_source.h"

namespace miniray::ml {

struct TarMember {
  std::string name;     // As the archive has it: "cifar-10/data.bin".
  int64_t size = 0;     // Bytes of data.
  bool is_file = true;  // Else a folder, a link, a device.
};

// Never trusts what the archive says about itself. Not thread-safe.
class TarReader {
 public:
  // source: at the archive's first byte. It has to outlive the reader.
  explicit TarReader(ByteSource* source) : source_(*source) {}

  // Passes over what was not read of the member before and returns the next
  // one, at whose data the source is then: the caller may read up to
  // TarMember::size bytes of it. After the last member, nothing: the source was
  // read to its end then, by which gzip's checksum was verified.
  //
  // Errors: DataLoss, with the file and the byte, if the archive ends early, a
  // header is none or has a wrong checksum, or a member cannot fit in the file;
  // those of the source.
  absl::StatusOr<std::optional<TarMember>> Next();

 private:
  struct Header;

  // Reads a header, or nothing where the archive ends.
  absl::StatusOr<std::optional<Header>> ReadHeader();
  // Reads the data of a header that describes the next one.
  absl::StatusOr<std::string> ReadText(const Header& header);
  absl::Status ParsePax(const Header& header, absl::string_view text,
                        TarMember* member) const;

  ByteSource& source_;
  int64_t next_header_ = 0;  // Offset in the source.
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_TAR_READER_H_
