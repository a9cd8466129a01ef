#include "train/crc32c.h"

#include <array>

namespace miniray::train {
namespace {

// The remainder of each byte.
constexpr std::array<uint32_t, 256> kRemainders = [] {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78u : 0);
    }
    table[byte] = crc;
  }
  return table;
}();

}  // namespace

uint32_t Crc32c(absl::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc = (crc >> 8) ^ kRemainders[(crc ^ static_cast<uint8_t>(c)) & 0xFF];
  }
  return ~crc;
}

}  // namespace miniray::train
