#include "ml/data/tar_reader.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

constexpr int64_t kBlock = 512;
// Of a long name or a pax header: paths are shorter on any system.
constexpr int64_t kMaxText = 64 * 1024;

// A field of a header.
struct Field {
  int64_t offset;
  int64_t size;
};
constexpr Field kName = {0, 100};
constexpr Field kSize = {124, 12};
constexpr Field kChecksum = {148, 8};
constexpr Field kMagic = {257, 5};
constexpr Field kVersion = {262, 3};
constexpr Field kPrefix = {345, 155};
constexpr int64_t kType = 156;

using Block = std::array<char, kBlock>;

absl::string_view Bytes(const Block& block, const Field& field) {
  return absl::string_view(block.data() + field.offset,
                           static_cast<size_t>(field.size));
}

// A field's text, which ends at the first zero byte, if there is one.
absl::string_view Text(const Block& block, const Field& field) {
  const absl::string_view bytes = Bytes(block, field);
  return bytes.substr(0, bytes.find('\0'));
}

// Returns a number of octal digits, with blanks around them, or nothing.
std::optional<int64_t> Octal(const Block& block, const Field& field) {
  absl::string_view digits = Text(block, field);
  while (absl::ConsumePrefix(&digits, " ")) {
  }
  while (absl::ConsumeSuffix(&digits, " ")) {
  }
  if (digits.empty()) return std::nullopt;
  int64_t value = 0;  // At most 12 digits of 3 bits.
  for (const char digit : digits) {
    if (digit < '0' || digit > '7') return std::nullopt;
    value = value * 8 + (digit - '0');
  }
  return value;
}

// The sum of a header's bytes, its checksum's taken as blanks.
int64_t SumOf(const Block& block) {
  int64_t sum = 0;
  for (int64_t i = 0; i < kBlock; ++i) {
    const bool of_checksum =
        i >= kChecksum.offset && i < kChecksum.offset + kChecksum.size;
    sum += of_checksum ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

bool IsFile(char type) { return type == '0' || type == '\0' || type == '7'; }

// Links, devices, folders and pipes have no data, whatever their size says.
bool HasData(char type) { return type < '1' || type > '6'; }

// Far above what any file has, and low enough that no sum of such overflows.
constexpr int64_t kMaxOffset = std::numeric_limits<int64_t>::max() / 2;

// Names go into messages, and an archive may have anything in them.
std::string Quoted(absl::string_view name) {
  return absl::StrCat("'", absl::CHexEscape(name), "'");
}

int64_t RoundUp(int64_t size) { return (size + kBlock - 1) / kBlock * kBlock; }

}  // namespace

struct TarReader::Header {
  int64_t at = 0;  // Its offset in the source.
  char type = '0';
  TarMember member;
};

absl::StatusOr<std::optional<TarReader::Header>> TarReader::ReadHeader() {
  MR_RETURN_IF_ERROR(
      source_.Skip(next_header_ - source_.offset(), "an archive's member"));
  Header header;
  header.at = source_.offset();
  Block block;
  MR_RETURN_IF_ERROR(source_.Read(block.data(), kBlock, "a tar header"));
  if (std::all_of(block.begin(), block.end(),
                  [](char byte) { return byte == '\0'; })) {
    return std::nullopt;
  }
  if (Bytes(block, kMagic) != "ustar") {
    return source_.ErrorAt(header.at,
                           "no tar header: its magic 'ustar' is not there; "
                           "expected a tar archive, plain or with gzip");
  }
  const int64_t sum = SumOf(block);
  const std::optional<int64_t> expected = Octal(block, kChecksum);
  if (expected != sum) {
    return source_.ErrorAt(
        header.at,
        absl::StrCat(
            "a damaged tar header: the sum of its bytes is ", sum,
            ", the checksum in it ",
            expected.has_value() ? absl::StrCat(*expected) : "no number"));
  }
  header.type = block[kType];
  header.member.is_file = IsFile(header.type);
  header.member.name = std::string(Text(block, kName));
  // GNU tar, whose version is " \0" behind the magic, has other things there.
  const absl::string_view prefix = Text(block, kPrefix);
  if (Bytes(block, kVersion)[0] == '\0' && !prefix.empty()) {
    header.member.name = absl::StrCat(prefix, "/", header.member.name);
  }
  if (HasData(header.type)) {
    const std::optional<int64_t> size = Octal(block, kSize);
    if (!size.has_value()) {
      return source_.ErrorAt(
          header.at,
          absl::StrCat("the size of the archive's member ",
                       Quoted(header.member.name), " is not octal digits"));
    }
    header.member.size = *size;
  }
  next_header_ = source_.offset() + RoundUp(header.member.size);
  return header;
}

absl::StatusOr<std::string> TarReader::ReadText(const Header& header) {
  if (header.member.size > kMaxText) {
    return source_.ErrorAt(
        header.at,
        absl::StrCat("a tar header with ", header.member.size,
                     " bytes of names; expected at most ", kMaxText));
  }
  std::string text(static_cast<size_t>(header.member.size), '\0');
  MR_RETURN_IF_ERROR(
      source_.Read(text.data(), header.member.size, "a name in the archive"));
  return text;
}

absl::Status TarReader::ParsePax(const Header& header, absl::string_view text,
                                 TarMember* member) const {
  // Records of "LENGTH KEY=VALUE\n", whose length counts all of it.
  while (!text.empty()) {
    const size_t blank = text.find(' ');
    const size_t equals = text.find('=');
    int64_t length = 0;
    if (blank == text.npos || equals == text.npos || equals < blank ||
        !absl::SimpleAtoi(text.substr(0, blank), &length) ||
        length > static_cast<int64_t>(text.size()) ||
        length < static_cast<int64_t>(equals) + 2 ||
        text[static_cast<size_t>(length) - 1] != '\n') {
      return source_.ErrorAt(header.at, "a damaged pax header");
    }
    const auto end = static_cast<size_t>(length);
    const absl::string_view key = text.substr(blank + 1, equals - blank - 1);
    const absl::string_view value = text.substr(equals + 1, end - equals - 2);
    if (key == "path") member->name = std::string(value);
    if (key == "size" &&
        (!absl::SimpleAtoi(value, &member->size) || member->size < 0)) {
      return source_.ErrorAt(
          header.at, "a pax header with a size that is no number of bytes");
    }
    text.remove_prefix(end);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<TarMember>> TarReader::Next() {
  // What headers before the member's own say about it.
  TarMember said = {.size = -1};
  bool awaits_member = false;
  while (true) {
    MR_ASSIGN_OR_RETURN(std::optional<Header> header, ReadHeader());
    if (!header.has_value()) {
      if (awaits_member) {
        return source_.ErrorAt(next_header_,
                               "the archive ends after the long name of a "
                               "member; expected the member");
      }
      MR_RETURN_IF_ERROR(source_.SkipToEnd());
      return std::nullopt;
    }
    if (header->type == 'L' || header->type == 'x') {
      MR_ASSIGN_OR_RETURN(const std::string text, ReadText(*header));
      if (header->type == 'L') {
        said.name = text.substr(0, text.find('\0'));
      } else {
        MR_RETURN_IF_ERROR(ParsePax(*header, text, &said));
      }
      awaits_member = true;
      continue;
    }
    // What is true of all members, and long targets of links.
    if (header->type == 'g' || header->type == 'K') continue;

    TarMember& member = header->member;
    if (!said.name.empty()) member.name = std::move(said.name);
    if (said.size >= 0 && HasData(header->type)) member.size = said.size;
    const int64_t most =
        std::min(source_.max_remaining(), kMaxOffset - source_.offset());
    if (member.size > most) {
      return source_.ErrorAt(
          header->at, absl::StrCat("the archive's member ", Quoted(member.name),
                                   " has ", member.size, " bytes; at most ",
                                   most, " can follow in the file"));
    }
    next_header_ = source_.offset() + RoundUp(member.size);
    return std::move(member);
  }
}

}  // namespace miniray::ml
