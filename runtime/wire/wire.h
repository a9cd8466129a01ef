// Reads and writes serialized protobuf without generated classes, over
// absl::Cord, so that large `bytes` fields are neither copied when they are
// written nor when they are cut out of a received message. The bytes are what a
// generated class would write; any protobuf parser reads them.
//
// A large `bytes` field can be used where it lies only if it begins at an
// address that suits its elements. So a writer knows where its large parts
// begin, and with padding (fields that mean nothing) all of them begin at a
// cache line.
//
// Not thread-safe.

#ifndef MINIRAY_RUNTIME_WIRE_WIRE_H_
#define MINIRAY_RUNTIME_WIRE_WIRE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace miniray {

// Appends fields of one message.
class WireWriter {
 public:
  void Varint(int field, uint64_t value);
  void SignedVarint(int field, int64_t value);  // sint64: zigzag
  void Double(int field, double value);
  void PackedVarints(int field, const std::vector<uint64_t>& values);
  void Bytes(int field, absl::string_view bytes);  // string or bytes
  void Bytes(int field, absl::Cord bytes);         // shares the cord's memory
  // A message that `nested` holds.
  void Message(int field, WireWriter nested);
  // The same, for a message whose field `padding` means nothing: it begins with
  // one, if without it its large parts were not aligned as those before it.
  void AlignedMessage(int field, WireWriter nested, int padding);
  // Fields that are serialized already.
  void Raw(absl::Cord fields);

  uint64_t size() const { return cord_.size() + tail_.size(); }
  absl::Cord Take() &&;
  // The same, begun with so much padding that the large parts lie at cache
  // lines of what begins at one.
  absl::Cord TakeAligned(int padding) &&;

 private:
  void Tag(int field, int wire_type);
  void RawVarint(uint64_t value);
  void Append(absl::Cord cord);
  // Begins with a field `padding` of so many bytes, its tag included.
  void PrependPadding(int padding, uint64_t bytes);

  absl::Cord cord_;   // What stands before tail_.
  std::string tail_;  // Small fields gather here.
  // Where large parts begin, modulo the size of a cache line, if there are
  // some.
  std::optional<uint64_t> large_at_;
};

// One field as it stands on the wire.
struct WireField {
  int number = 0;
  enum class Type { kVarint, kFixed64, kBytes, kFixed32 } type = Type::kVarint;
  uint64_t scalar = 0;  // kVarint, kFixed64, kFixed32
  absl::Cord bytes;     // kBytes: shares memory with the message

  int64_t zigzag() const {
    return static_cast<int64_t>((scalar >> 1) ^ (~(scalar & 1) + 1));
  }
  double as_double() const;
};

// Walks through the fields of one message. Safe on any bytes: a malformed
// message is INVALID_ARGUMENT, and nothing is allocated beyond its size.
class WireReader {
 public:
  // `message` must outlive the reader.
  explicit WireReader(const absl::Cord& message)
      : position_(message.char_begin()), left_(message.size()) {}
  explicit WireReader(absl::Cord&&) = delete;

  bool done() const { return left_ == 0; }
  absl::Status Next(WireField* field);  // REQUIRES: !done()

  // Reads one varint outside any field, as packed repeated fields hold them.
  absl::StatusOr<uint64_t> RawVarint();  // REQUIRES: !done()

 private:
  absl::Cord::CharIterator position_;
  uint64_t left_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WIRE_WIRE_H_
