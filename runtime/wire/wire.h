// Reads and writes serialized protobuf without generated classes, over
// absl::Cord, so that large `bytes` fields are neither copied when they are
// written nor when they are cut out of a received message. The bytes are what a
// generated class would write; any protobuf parser reads them.
//
// Not thread-safe.

#ifndef MINIRAY_RUNTIME_WIRE_WIRE_H_
#define MINIRAY_RUNTIME_WIRE_WIRE_H_

#include <cstdint>
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
  // Fields that are serialized already.
  void Raw(absl::Cord fields);

  uint64_t size() const { return cord_.size() + tail_.size(); }
  absl::Cord Take() &&;

 private:
  void Tag(int field, int wire_type);
  void RawVarint(uint64_t value);
  void Append(absl::Cord cord);

  absl::Cord cord_;   // What stands before tail_.
  std::string tail_;  // Small fields gather here.
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
