#include "ps/shard_states.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"

namespace miniray::ps {
namespace {

constexpr size_t kSizeBytes = 8;  // Of the magic bytes, too.
constexpr absl::string_view kMagic("MRPSSH\0\1", kSizeBytes);

void Append(absl::string_view bytes, std::string* packed) {
  const uint64_t size = bytes.size();
  for (size_t i = 0; i < kSizeBytes; ++i) {
    packed->push_back(static_cast<char>(size >> (8 * i) & 0xff));
  }
  packed->append(bytes.data(), bytes.size());
}

// Takes one off the front; false if `bytes` ends before.
bool Take(absl::string_view* bytes, std::string* taken) {
  if (bytes->size() < kSizeBytes) return false;
  uint64_t size = 0;
  for (size_t i = 0; i < kSizeBytes; ++i) {
    size |= uint64_t{static_cast<unsigned char>((*bytes)[i])} << (8 * i);
  }
  bytes->remove_prefix(kSizeBytes);
  if (size > bytes->size()) return false;
  *taken = std::string(bytes->substr(0, size));
  bytes->remove_prefix(size);
  return true;
}

}  // namespace

std::string PackShardStates(const ShardStates& states) {
  size_t size = 2 * kSizeBytes + states.id.size();
  for (const std::string& shard : states.shards) {
    size += kSizeBytes + shard.size();
  }
  std::string packed(kMagic);
  packed.reserve(size);
  Append(states.id, &packed);
  for (const std::string& shard : states.shards) Append(shard, &packed);
  return packed;
}

bool AreShardStates(absl::string_view bytes) {
  return bytes.substr(0, kMagic.size()) == kMagic;
}

absl::StatusOr<ShardStates> UnpackShardStates(absl::string_view bytes) {
  if (!AreShardStates(bytes)) {
    return absl::InvalidArgumentError(
        "these are not the states of a parameter server's shards");
  }
  bytes.remove_prefix(kMagic.size());
  ShardStates states;
  bool whole = Take(&bytes, &states.id);
  while (whole && !bytes.empty()) {
    std::string shard;
    whole = Take(&bytes, &shard);
    states.shards.push_back(std::move(shard));
  }
  if (whole) return states;
  return absl::InvalidArgumentError(
      "the states of a parameter server's shards are cut short");
}

}  // namespace miniray::ps
