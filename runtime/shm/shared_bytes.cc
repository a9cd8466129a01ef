#include "runtime/shm/shared_bytes.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/copy.h"
#include "runtime/base/status_macros.h"
#include "runtime/shm/borrowed_memory.h"
#include "runtime/shm/segment.h"
#include "runtime/shm/shared_memory.h"
#include "runtime/wire/wire.h"

namespace miniray {
namespace {

using Type = WireField::Type;

// SharedBytes.
constexpr int kSegments = 1, kPieces = 2;
// SharedSegment.
constexpr int kPid = 1, kFd = 2, kInode = 3, kGeneration = 4, kSize = 5;
// SharedPiece.
constexpr int kInline = 1, kIndex = 2, kOffset = 3, kLength = 4;

// A part of at least this size is large: it gets a place of its own.
constexpr size_t kLargePart = 4096;

// Tensors begin at cache lines.
constexpr uint64_t kAlignment = 64;

// What a message may refer to.
constexpr size_t kMaxSegments = 4096;

// What one message may describe, for a piece costs its sender a few bytes
// whatever its length. The same tensor may be an argument several times.
uint64_t MaxBytes() {
  static const uint64_t bytes = 16 *
                                static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// A place in shared memory.
struct Place {
  SegmentName segment;
  uint64_t generation = 0;
  uint64_t offset = 0;
};

std::optional<Place> Locate(const char* address) {
  if (const auto block = SharedMemory::Get().Find(address)) {
    return Place{block->segment(), block->generation(),
                 static_cast<uint64_t>(address - block->data())};
  }
  // Its owner may give it back, or die, before the receiver opens it: this
  // process keeps it open and reads it.
  if (const auto segment = BorrowedMemory::Get().Find(address)) {
    return Place{segment->own_name(), segment->generation(),
                 static_cast<uint64_t>(address - segment->data())};
  }
  return std::nullopt;
}

absl::Cord Hold(std::shared_ptr<SharedBlock> block, const char* data,
                size_t size) {
  return absl::MakeCordFromExternal(absl::string_view(data, size),
                                    [block = std::move(block)] {});
}

struct OpenedSegment {
  SegmentName name;
  uint64_t generation = 0;
  uint64_t size = 0;
  std::optional<BorrowedMemory::Lease> lease;  // Once it is wanted.
};

absl::Status Malformed() {
  return absl::InvalidArgumentError("malformed reference to shared memory");
}

absl::StatusOr<OpenedSegment> DecodeSegment(const absl::Cord& bytes) {
  OpenedSegment segment;
  WireReader reader(bytes);
  WireField field;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    if (field.type != Type::kVarint) continue;
    switch (field.number) {
      case kPid:
        segment.name.pid = static_cast<pid_t>(field.scalar);
        break;
      case kFd:
        segment.name.fd = static_cast<int>(field.scalar);
        break;
      case kInode:
        segment.name.inode = field.scalar;
        break;
      case kGeneration:
        segment.generation = field.scalar;
        break;
      case kSize:
        segment.size = field.scalar;
        break;
      default:
        break;
    }
  }
  return segment;
}

absl::Status DecodePiece(const absl::Cord& bytes,
                         std::vector<OpenedSegment>* segments,
                         absl::Cord* out) {
  uint64_t index = 0, offset = 0, length = 0;
  WireReader reader(bytes);
  WireField field;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    if (field.number == kInline && field.type == Type::kBytes) {
      out->Append(std::move(field.bytes));
    } else if (field.type == Type::kVarint) {
      if (field.number == kIndex) index = field.scalar;
      if (field.number == kOffset) offset = field.scalar;
      if (field.number == kLength) length = field.scalar;
    }
  }
  if (length == 0) return absl::OkStatus();
  if (index >= segments->size()) return Malformed();
  OpenedSegment& segment = (*segments)[index];
  if (offset > segment.size || length > segment.size - offset) {
    return Malformed();
  }
  if (length > MaxBytes() - std::min<uint64_t>(out->size(), MaxBytes())) {
    return absl::InvalidArgumentError(
        "malformed reference to shared memory: more bytes than 16 times this "
        "machine's memory");
  }
  if (!segment.lease.has_value()) {
    MR_ASSIGN_OR_RETURN(segment.lease,
                        BorrowedMemory::Get().Borrow(
                            segment.name, segment.generation, segment.size));
  }
  out->Append(absl::MakeCordFromExternal(
      absl::string_view(segment.lease->data() + offset, length),
      [lease = *segment.lease] {}));
  return absl::OkStatus();
}

}  // namespace

absl::Cord MoveToSharedMemory(absl::Cord bytes) {
  SharedMemory& pool = SharedMemory::Get();
  uint64_t wanted = 0;
  for (absl::string_view part : bytes.Chunks()) {
    if (part.size() < kLargePart || Locate(part.data())) continue;
    wanted += (part.size() + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (wanted < kMinSharedBytes) return bytes;
  const std::shared_ptr<SharedBlock> block = pool.Allocate(wanted);
  if (block == nullptr) return bytes;
  absl::Cord moved;
  char* position = block->data();
  uint64_t at = 0;
  for (absl::string_view part : bytes.Chunks()) {
    if (part.size() < kLargePart || Locate(part.data())) {
      moved.Append(bytes.Subcord(at, part.size()));
    } else {
      CopyLarge(position, part.data(), part.size());
      moved.Append(Hold(block, position, part.size()));
      position += (part.size() + kAlignment - 1) / kAlignment * kAlignment;
    }
    at += part.size();
  }
  return moved;
}

absl::Cord EncodeSharedBytes(const absl::Cord& bytes) {
  WireWriter pieces;
  absl::Cord inlined;
  auto flush = [&] {
    if (inlined.empty()) return;
    WireWriter piece;
    piece.Bytes(kInline, std::exchange(inlined, {}));
    pieces.Message(kPieces, std::move(piece));
  };
  struct Use {
    SegmentName segment;
    uint64_t generation;
    uint64_t size;
  };
  std::vector<Use> uses;
  std::map<std::tuple<pid_t, int, uint64_t>, size_t> indices;
  uint64_t at = 0;
  for (absl::string_view part : bytes.Chunks()) {
    std::optional<Place> place;
    if (part.size() >= kLargePart) place = Locate(part.data());
    if (!place.has_value()) {
      inlined.Append(bytes.Subcord(at, part.size()));
    } else {
      flush();
      const SegmentName& name = place->segment;
      const auto [it, added] = indices.emplace(
          std::make_tuple(name.pid, name.fd, name.inode), uses.size());
      if (added) uses.push_back({place->segment, place->generation, 0});
      Use& use = uses[it->second];
      use.size = std::max<uint64_t>(use.size, place->offset + part.size());
      WireWriter piece;
      piece.Varint(kIndex, it->second);
      piece.Varint(kOffset, place->offset);
      piece.Varint(kLength, part.size());
      pieces.Message(kPieces, std::move(piece));
    }
    at += part.size();
  }
  if (uses.empty() || uses.size() > kMaxSegments) return absl::Cord();
  flush();
  WireWriter shared;
  for (const Use& use : uses) {
    WireWriter segment;
    segment.Varint(kPid, static_cast<uint64_t>(use.segment.pid));
    segment.Varint(kFd, static_cast<uint64_t>(use.segment.fd));
    segment.Varint(kInode, use.segment.inode);
    segment.Varint(kGeneration, use.generation);
    segment.Varint(kSize, use.size);
    shared.Message(kSegments, std::move(segment));
  }
  shared.Raw(std::move(pieces).Take());
  return std::move(shared).Take();
}

absl::StatusOr<absl::Cord> DecodeSharedBytes(const absl::Cord& encoded) {
  std::vector<OpenedSegment> segments;
  absl::Cord bytes;
  WireReader reader(encoded);
  WireField field;
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    if (field.type != Type::kBytes) continue;
    if (field.number == kSegments) {
      if (segments.size() >= kMaxSegments) return Malformed();
      MR_ASSIGN_OR_RETURN(segments.emplace_back(), DecodeSegment(field.bytes));
    } else if (field.number == kPieces) {
      MR_RETURN_IF_ERROR(DecodePiece(field.bytes, &segments, &bytes));
    }
  }
  return bytes;
}

}  // namespace miniray
