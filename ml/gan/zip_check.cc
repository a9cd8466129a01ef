#include "ml/gan/zip_check.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDirectoryEntry = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kLocator64 = 0x07064b50;

constexpr size_t kLocalHeaderSize = 30;
constexpr size_t kDirectoryEntrySize = 46;
constexpr size_t kEndSize = 22;
constexpr size_t kEnd64Size = 56;
constexpr size_t kLocator64Size = 20;
constexpr size_t kMaxCommentSize = 0xffff;

// A value of all ones stands for "see the 64-bit field".
constexpr uint64_t kSee64 = 0xffffffff;

constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflated = 8;

constexpr uint16_t kEncryptedFlag = 1 << 0;
constexpr uint16_t kSizesFollowFlag = 1 << 3;

struct Directory {
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t entries = 0;
};

struct Member {
  absl::string_view name;
  uint16_t method = kStored;
  uint32_t crc = 0;
  uint64_t size = 0;
  uint64_t stored_size = 0;  // Of its bytes in the file.
  uint64_t header_offset = 0;
};

class ZipChecker {
 public:
  explicit ZipChecker(absl::string_view bytes) : bytes_(bytes) {}

  absl::Status Check() const {
    if (!absl::StartsWith(bytes_, "PK\x03\x04")) {
      return absl::InvalidArgumentError("it does not begin like a ZIP file");
    }
    MR_ASSIGN_OR_RETURN(const Directory directory, FindDirectory());
    uint64_t position = directory.offset;
    for (uint64_t i = 0; i < directory.entries; ++i) {
      MR_ASSIGN_OR_RETURN(const Member member, NextMember(&position));
      MR_RETURN_IF_ERROR(CheckMember(member));
    }
    if (position != directory.offset + directory.size) {
      return Damaged(position, "the directory does not end where it should");
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Damaged(uint64_t offset, absl::string_view what) {
    return absl::DataLossError(absl::StrCat("at byte ", offset, ": ", what));
  }

  // True if `size` bytes lie at `offset`; both may be anything.
  bool Holds(uint64_t offset, uint64_t size) const {
    return offset <= bytes_.size() && size <= bytes_.size() - offset;
  }

  // Little-endian numbers. REQUIRES: Holds(offset, their size).
  uint64_t Number(uint64_t offset, int size) const {
    uint64_t value = 0;
    for (int i = size - 1; i >= 0; --i) {
      value = value << 8 | static_cast<uint8_t>(bytes_[offset + i]);
    }
    return value;
  }
  uint16_t U16(uint64_t offset) const {
    return static_cast<uint16_t>(Number(offset, 2));
  }
  uint32_t U32(uint64_t offset) const {
    return static_cast<uint32_t>(Number(offset, 4));
  }
  uint64_t U64(uint64_t offset) const { return Number(offset, 8); }

  absl::StatusOr<Directory> FindDirectory() const {
    if (bytes_.size() < kEndSize) {
      return absl::DataLossError("it is truncated");
    }
    const size_t last = bytes_.size() - kEndSize;
    const size_t first = last - std::min(last, kMaxCommentSize);
    for (size_t end = last + 1; end-- > first;) {
      if (U32(end) != kEnd || end + kEndSize + U16(end + 20) != bytes_.size()) {
        continue;
      }
      Directory directory = {.offset = U32(end + 16),
                             .size = U32(end + 12),
                             .entries = U16(end + 10)};
      if (end >= kLocator64Size && U32(end - kLocator64Size) == kLocator64) {
        const uint64_t end64 = U64(end - kLocator64Size + 8);
        if (!Holds(end64, kEnd64Size) || U32(end64) != kEnd64) {
          return Damaged(end - kLocator64Size,
                         "it does not lead to a 64-bit end record");
        }
        directory = {.offset = U64(end64 + 48),
                     .size = U64(end64 + 40),
                     .entries = U64(end64 + 32)};
      }
      if (!Holds(directory.offset, directory.size)) {
        return Damaged(end, "the directory lies outside the file");
      }
      return directory;
    }
    return absl::DataLossError(
        absl::StrCat("it is truncated: a ZIP file's directory should be at its "
                     "end, byte ",
                     bytes_.size()));
  }

  // Reads the directory entry at *position and moves *position past it.
  absl::StatusOr<Member> NextMember(uint64_t* position) const {
    const uint64_t at = *position;
    if (!Holds(at, kDirectoryEntrySize) || U32(at) != kDirectoryEntry) {
      return Damaged(at, "expected a directory entry");
    }
    const uint16_t method = U16(at + 10);
    if ((U16(at + 8) & kEncryptedFlag) != 0 ||
        (method != kStored && method != kDeflated)) {
      return absl::UnimplementedError(
          absl::StrCat("at byte ", at,
                       ": a member that is encrypted or compressed in a way "
                       "that LibTorch does not use"));
    }
    const uint64_t name_size = U16(at + 28);
    const uint64_t extra_size = U16(at + 30);
    const uint64_t total =
        kDirectoryEntrySize + name_size + extra_size + U16(at + 32);
    if (!Holds(at, total)) {
      return Damaged(at, "a directory entry reaches beyond the file");
    }
    Member member = {.name = bytes_.substr(at + kDirectoryEntrySize, name_size),
                     .method = method,
                     .crc = U32(at + 16),
                     .size = U32(at + 24),
                     .stored_size = U32(at + 20),
                     .header_offset = U32(at + 42)};

    uint64_t extra = at + kDirectoryEntrySize + name_size;
    const uint64_t extra_end = extra + extra_size;
    while (extra + 4 <= extra_end) {
      const uint64_t field_end = extra + 4 + U16(extra + 2);
      if (field_end > extra_end) break;
      if (U16(extra) == 1) {  // Holds the 64-bit values that are needed.
        uint64_t value = extra + 4;
        for (uint64_t* field :
             {&member.size, &member.stored_size, &member.header_offset}) {
          if (*field != kSee64 || value + 8 > field_end) continue;
          *field = U64(value);
          value += 8;
        }
      }
      extra = field_end;
    }
    if (method == kStored && member.size != member.stored_size) {
      return Damaged(at, absl::StrCat("the two sizes of ", Printable(member),
                                      " differ: ", member.size, " and ",
                                      member.stored_size));
    }
    if (method == kDeflated && member.size > kMaxInflatedBytes) {
      return absl::UnimplementedError(absl::StrCat(
          "at byte ", at, ": ", Printable(member), " would inflate to ",
          member.size, " bytes; the limit is ", kMaxInflatedBytes));
    }
    *position = at + total;
    return member;
  }

  absl::Status CheckMember(const Member& member) const {
    const uint64_t at = member.header_offset;
    if (!Holds(at, kLocalHeaderSize) || U32(at) != kLocalHeader) {
      return Damaged(
          at, absl::StrCat("expected the header of ", Printable(member)));
    }
    const uint64_t name_size = U16(at + 26);
    const uint64_t data = at + kLocalHeaderSize + name_size + U16(at + 28);
    if (!Holds(at, data - at) || !Holds(data, member.stored_size)) {
      return Damaged(
          at, absl::StrCat(Printable(member), " reaches beyond the file"));
    }
    const uint16_t flags = U16(at + 6);
    bool same =
        bytes_.substr(at + kLocalHeaderSize, name_size) == member.name &&
        U16(at + 8) == member.method && (flags & kEncryptedFlag) == 0;
    if ((flags & kSizesFollowFlag) == 0) {
      same = same && U32(at + 14) == member.crc &&
             (U32(at + 22) == kSee64 || U32(at + 22) == member.size) &&
             (U32(at + 18) == kSee64 || U32(at + 18) == member.stored_size);
    }
    if (!same) {
      return Damaged(at, absl::StrCat("the header of ", Printable(member),
                                      " differs from the directory"));
    }
    const auto* const stored =
        reinterpret_cast<const Bytef*>(bytes_.data()) + data;
    const bool right = member.method == kStored
                           ? crc32_z(0, stored, member.size) == member.crc
                           : InflatesTo(stored, member);
    if (!right) {
      return Damaged(data, absl::StrCat("the ", member.stored_size,
                                        " bytes of ", Printable(member),
                                        " do not match their checksum"));
    }
    return absl::OkStatus();
  }

  // True if the deflated bytes at `stored` are whole and give what `member`
  // promises.
  static bool InflatesTo(const Bytef* stored, const Member& member) {
    if (member.stored_size > UINT_MAX) return false;
    z_stream stream = {};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
    // zlib does not write to its input.
    stream.next_in = const_cast<Bytef*>(stored);
    stream.avail_in = static_cast<uInt>(member.stored_size);
    std::array<Bytef, 16384> buffer;
    uint64_t size = 0;
    uLong crc = 0;
    int result = Z_OK;
    while (result == Z_OK && size <= member.size) {
      stream.next_out = buffer.data();
      stream.avail_out = buffer.size();
      result = inflate(&stream, Z_NO_FLUSH);
      const size_t count = buffer.size() - stream.avail_out;
      crc = crc32_z(crc, buffer.data(), count);
      size += count;
    }
    inflateEnd(&stream);
    return result == Z_STREAM_END && stream.avail_in == 0 &&
           size == member.size && crc == member.crc;
  }

  // The member's name, fit for a one-line message.
  static std::string Printable(const Member& member) {
    std::string name(member.name.substr(0, 80));
    for (char& c : name) {
      if (c < ' ' || c > '~') c = '?';
    }
    return name;
  }

  const absl::string_view bytes_;
};

}  // namespace

absl::Status CheckZipArchive(absl::string_view bytes) {
  return ZipChecker(bytes).Check();
}

}  // namespace miniray::ml
