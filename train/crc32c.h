// CRC-32C (Castagnoli), the checksum of TFRecord files.

#ifndef MINIRAY_TRAIN_CRC32C_H_
#define MINIRAY_TRAIN_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace miniray::train {

// Polynomial 0x1EDC6F41, reflected; begun with and inverted at the end by all
// ones. Of "123456789" it is 0xE3069283.
//
// Source: RFC 3720, appendix B.4.
uint32_t Crc32c(absl::string_view bytes);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_CRC32C_H_
