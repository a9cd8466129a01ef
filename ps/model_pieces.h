// Runs a kernel over all floating-point tensors of several models at once, in
// pieces, on all cores.
//
//   auto work = [&](const auto& piece) {
//     TrimmedMean(piece.read, cut, piece.size, piece.written[0]);
//   };
//   ForEachPiece(ModelsOf(contributions), {&result}, work, work);

#ifndef MINIRAY_PS_MODEL_PIECES_H_
#define MINIRAY_PS_MODEL_PIECES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "ps/sync_strategy.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

// Consecutive elements of one tensor, of each model. T is double for tensors of
// doubles, else float. A complex number is two elements.
template <class T>
struct ModelPiece {
  size_t index = 0;   // Of the piece, from 0, by tensor and begin.
  size_t tensor = 0;  // Index in the models.
  int64_t begin = 0;  // First element of the tensor in this piece.
  int64_t size = 0;   // Number of elements.
  // By model, as they were given; null where a model's tensor is undefined.
  std::vector<const T*> read;
  std::vector<T*> written;  // May be read, too.
};

// Calls `work` for each piece of the models, from several threads at a time,
// and returns when all calls have. float16 and bfloat16 are converted to float
// and, where written, back.
//
// read, written: at least one read. Tensor i of each model has read[0]'s shape
//   or is undefined, and its element type or that which it is computed in; the
//   written ones are contiguous. Those of read[0] that are not floating-point
//   are left out.
// work: must not throw.
void ForEachPiece(
    absl::Span<const NamedTensors* const> read,
    absl::Span<NamedTensors* const> written,
    absl::FunctionRef<void(const ModelPiece<float>&)> work,
    absl::FunctionRef<void(const ModelPiece<double>&)> work_double);

// Elements that SumOverPieces adds up in double before they join the sums.
inline constexpr int64_t kSumBlock = 4096;

// Returns `num_sums` sums over all elements of the models. Each kSumBlock
// elements of a tensor, counted from its first, are added up by themselves, and
// then all of them as WideSums. So the result is the same whatever the number
// of threads, and for models that are cut at multiples of kSumBlock.
//
// models: as ForEachPiece reads them.
// add: adds what a piece of at most kSumBlock elements amounts to; sums has
//   num_sums numbers. Must not throw.
template <class T>
using AddPiece =
    absl::FunctionRef<void(const ModelPiece<T>&, absl::Span<double> sums)>;
std::vector<WideSum> SumOverPieces(absl::Span<const NamedTensors* const> models,
                                   size_t num_sums, AddPiece<float> add,
                                   AddPiece<double> add_double);

// The tensors of each contribution.
std::vector<const NamedTensors*> ModelsOf(
    absl::Span<const Contribution> contributions);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_MODEL_PIECES_H_
