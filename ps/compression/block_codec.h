// Compressed forms of float32 values: plain memory in, plain memory out.
//
// Values are encoded in blocks of kCodecBlock, each by itself; only the last
// one of a tensor is shorter. So a tensor that is cut at multiples of
// kCodecBlock has the same bytes as in one piece, and blocks can be encoded and
// decoded on several cores. The same bits on every machine.
//
//   kFp16, kBf16  rounded to the nearest, ties to even. Finite values beyond
//                 the range (65504 for fp16) become the largest of the range.
//                 An error of at most 2^-11 and 2^-8 of the value; for fp16
//                 below 2^-14 of at most 2^-25.
//   kInt8         for every 256 values a float scale = their largest magnitude
//                 / 127, then q = value / scale rounded, one byte each. An
//                 error of at most 0.5001 scale. Magnitudes below 2^-100 are 0.
//   kTopK         the ceil(top_k_fraction * size) values of the block that are
//                 largest by magnitude, of equal ones the first, exactly; all
//                 others are 0. A float each, then a place in the block each,
//                 16 bits, in ascending order.
//                 Stich, Cordonnier, Jaggi 2018, Sparsified SGD with Memory: a
//                 k-contraction, and so is one by blocks.
//
// Values that are infinite or NaN stay so with kFp16 and kBf16; with kInt8 all
// 256 become NaN; kTopK sends them first. Numbers are little-endian.

#ifndef MINIRAY_PS_COMPRESSION_BLOCK_CODEC_H_
#define MINIRAY_PS_COMPRESSION_BLOCK_CODEC_H_

#include <cstdint>

#include "ps/compression/compression.h"

namespace miniray::ps {

inline constexpr int64_t kCodecBlock = 4096;

// Returns how many bytes `size` values take: blocks and a last, shorter one.
// REQUIRES here and below: Validate(options) and a method that is not kNone.
int64_t EncodedBytes(const CompressionOptions& options, int64_t size);

// Encodes one block. size: 1 to kCodecBlock. out: EncodedBytes(options, size).
void EncodeBlock(const CompressionOptions& options, const float* values,
                 int64_t size, char* out);

// Decodes what EncodeBlock made of `size` values. Returns false, *values being
// anything, for bytes that it never makes: places of kTopK that are not in
// order or beyond the block.
bool DecodeBlock(const CompressionOptions& options, const char* bytes,
                 int64_t size, float* values);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_COMPRESSION_BLOCK_CODEC_H_
