#include "ps/compression/difference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <utility>

#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "ps/compression/block_codec.h"
#include "ps/parallel_for.h"
#include "runtime/tensor/shared_tensors.h"

namespace miniray::ps {
namespace {

// What one thread works on at a time: some blocks of one tensor.
constexpr int64_t kPiece = 16 * kCodecBlock;

struct Piece {
  size_t tensor;
  int64_t begin, size;
};

// The pieces of all tensors that are defined.
std::vector<Piece> PiecesOf(const TensorList& tensors) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t numel = tensors[i].defined() ? tensors[i].numel() : 0;
    for (int64_t begin = 0; begin < numel; begin += kPiece) {
      pieces.push_back({i, begin, std::min(kPiece, numel - begin)});
    }
  }
  return pieces;
}

// Calls work(tensor, begin, size) for each block of the tensors, from several
// threads at a time.
template <class Work>
void ForEachBlock(const TensorList& tensors, const Work& work) {
  const std::vector<Piece> pieces = PiecesOf(tensors);
  ParallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t p) {
    const Piece& piece = pieces[static_cast<size_t>(p)];
    for (int64_t at = 0; at < piece.size; at += kCodecBlock) {
      work(piece.tensor, piece.begin + at,
           std::min(kCodecBlock, piece.size - at));
    }
  });
}

at::Tensor Flat(const at::Tensor& tensor) {
  return tensor.detach().cpu().contiguous();
}

float* Data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr<float>() : nullptr;
}

// Where a block of the tensor's encoded form begins.
int64_t Offset(const CompressionOptions& compression, int64_t begin) {
  return EncodedBytes(compression, begin);
}

at::Tensor Bytes(const CompressionOptions& compression, int64_t numel,
                 c10::Device device) {
  return at::empty({EncodedBytes(compression, numel)},
                   at::dtype(at::kByte).device(device));
}

}  // namespace

bool SameLayout(const NamedTensors& a, const NamedTensors& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
        return x.first == y.first && x.second.sizes() == y.second.sizes() &&
               x.second.scalar_type() == y.second.scalar_type();
      });
}

Difference EncodeDifference(const DifferenceRequest& request) {
  const CompressionOptions& compression = request.compression;
  const size_t count = request.to->size();
  TensorList to(count), from(count), owed(count), bytes(count), reached(count);
  NamedTensors compressed, byte_forms;  // Those that are, for their memory.
  std::vector<size_t> indices;
  for (size_t i = 0; i < count; ++i) {
    const auto& [name, tensor] = (*request.to)[i];
    if (tensor.scalar_type() != at::kFloat ||
        (!request.as_it_is.empty() && request.as_it_is[i])) {
      continue;
    }
    to[i] = Flat(tensor);
    if (request.from != nullptr) from[i] = Flat((*request.from)[i].second);
    if (request.owed != nullptr) owed[i] = (*request.owed)[i];
    compressed.emplace_back(name, to[i]);
    // Its size is all that is needed.
    byte_forms.emplace_back(name,
                            Bytes(compression, tensor.numel(), at::kMeta));
    indices.push_back(i);
  }
  Difference result;
  result.encoded = *request.to;
  const NamedTensors all_bytes = EmptySharedTensors(byte_forms);
  NamedTensors all_reached;
  if (request.wants_reached) {
    result.reached = *request.to;
    all_reached = EmptySharedTensors(compressed);
  }
  if (request.wants_lost) result.lost.resize(count);
  for (size_t k = 0; k < indices.size(); ++k) {
    const size_t i = indices[k];
    bytes[i] = result.encoded[i].second = all_bytes[k].second;
    if (request.wants_reached) {
      reached[i] = result.reached[i].second = all_reached[k].second;
    }
    if (request.wants_lost) {
      result.lost[i] = at::empty(to[i].sizes(), at::dtype(at::kFloat));
    }
  }
  ForEachBlock(to, [&](size_t i, int64_t begin, int64_t size) {
    alignas(64) float values[kCodecBlock], decoded[kCodecBlock];
    const float* const new_values = Data(to[i]) + begin;
    const bool has_old = from[i].defined();
    const float* const old_values = has_old ? Data(from[i]) + begin : nullptr;
    if (has_old) {
      for (int64_t k = 0; k < size; ++k)
        values[k] = new_values[k] - old_values[k];
    } else {
      std::copy_n(new_values, size, values);
    }
    if (owed[i].defined()) {
      const float* const more = Data(owed[i]) + begin;
      for (int64_t k = 0; k < size; ++k) values[k] += more[k];
    }
    char* const out = reinterpret_cast<char*>(bytes[i].data_ptr<uint8_t>()) +
                      Offset(compression, begin);
    EncodeBlock(compression, values, size, out);
    if (!request.wants_reached && !request.wants_lost) return;
    DecodeBlock(compression, out, size, decoded);
    if (request.wants_reached) {
      float* const sum = Data(reached[i]) + begin;
      for (int64_t k = 0; k < size; ++k) {
        sum[k] = has_old ? old_values[k] + decoded[k] : decoded[k];
      }
    }
    if (request.wants_lost) {
      float* const lost = Data(result.lost[i]) + begin;
      for (int64_t k = 0; k < size; ++k) {
        const float rest = values[k] - decoded[k];
        lost[k] = std::isfinite(rest) ? rest : 0.0f;
      }
    }
  });
  return result;
}

namespace {

// add: to the values of `base`, which else only tells the form.
absl::StatusOr<NamedTensors> Decode(const CompressionOptions& compression,
                                    const NamedTensors& encoded,
                                    const NamedTensors& base, bool add) {
  if (encoded.size() != base.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a difference of ", encoded.size(),
                     " tensors to a model of ", base.size()));
  }
  TensorList from(base.size()), bytes(base.size()), sums(base.size());
  NamedTensors result = encoded;
  for (size_t i = 0; i < base.size(); ++i) {
    const auto& [name, tensor] = base[i];
    const at::Tensor& given = encoded[i].second;
    if (encoded[i].first != name) {
      return absl::InvalidArgumentError(
          absl::StrCat("a difference: tensor ", i, " is '", encoded[i].first,
                       "', expected '", name, "'"));
    }
    if (tensor.scalar_type() != at::kFloat || !given.defined() ||
        given.scalar_type() != at::kByte) {
      continue;
    }
    const int64_t expected = EncodedBytes(compression, tensor.numel());
    if (given.dim() != 1 || given.numel() != expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a difference: '", name, "' has ", given.numel(), " bytes, and ",
          ToString(compression), " makes ", expected, " of it"));
    }
    bytes[i] = given.contiguous();
    sums[i] = at::empty(tensor.sizes(), at::dtype(at::kFloat));
    if (add) from[i] = Flat(tensor);
    result[i].second = sums[i];
  }
  std::atomic<size_t> malformed = base.size();
  ForEachBlock(sums, [&](size_t i, int64_t begin, int64_t size) {
    alignas(64) float decoded[kCodecBlock];
    const char* const in =
        reinterpret_cast<const char*>(bytes[i].data_ptr<uint8_t>()) +
        Offset(compression, begin);
    if (!DecodeBlock(compression, in, size, decoded)) {
      malformed = i;
      return;
    }
    float* const sum = Data(sums[i]) + begin;
    if (!add) {
      std::copy_n(decoded, size, sum);
      return;
    }
    const float* const old_values = Data(from[i]) + begin;
    for (int64_t k = 0; k < size; ++k) sum[k] = old_values[k] + decoded[k];
  });
  if (malformed != base.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a difference: '", base[malformed].first, "' is not what ",
                     ToString(compression), " makes"));
  }
  return result;
}

}  // namespace

absl::StatusOr<NamedTensors> ApplyDifference(
    const CompressionOptions& compression, const NamedTensors& encoded,
    const NamedTensors& base) {
  return Decode(compression, encoded, base, /*add=*/true);
}

absl::StatusOr<NamedTensors> DecodeDifference(
    const CompressionOptions& compression, const NamedTensors& encoded,
    const NamedTensors& like) {
  return Decode(compression, encoded, like, /*add=*/false);
}

}  // namespace miniray::ps
