#include "ps/model_pieces.h"

#include <algorithm>

#include "ATen/core/Tensor.h"
#include "ATen/ops/view_as_real.h"
#include "ps/parallel_for.h"
#include "ps/tensor_math.h"

namespace miniray::ps {
namespace {

// Elements that one thread computes at a time; fewer of a type that has to be
// converted, so that what is converted stays in the cache.
constexpr int64_t kPiece = 1 << 18;
constexpr int64_t kNarrowPiece = 1 << 13;

struct Stretch {
  size_t tensor;
  int64_t begin, size;
};

int64_t PieceSize(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble ? kPiece : kNarrowPiece;
}

std::vector<Stretch> Stretches(const std::vector<at::Tensor>& model) {
  std::vector<Stretch> stretches;
  for (size_t i = 0; i < model.size(); ++i) {
    if (!model[i].defined()) continue;
    const int64_t numel = model[i].numel();
    const int64_t step = PieceSize(model[i].scalar_type());
    for (int64_t begin = 0; begin < numel; begin += step) {
      stretches.push_back({i, begin, std::min(step, numel - begin)});
    }
  }
  return stretches;
}

// The tensors in the form that they are computed in; undefined where they are
// not floating-point.
std::vector<at::Tensor> RealTensors(const NamedTensors& model) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : model) {
    at::Tensor real;
    if (tensor.defined() && IsFloat(tensor)) {
      real = tensor.detach().cpu();
      if (real.is_complex()) real = at::view_as_real(real.resolve_conj());
      real = real.contiguous();
    }
    tensors.push_back(std::move(real));
  }
  return tensors;
}

template <class From, class To>
void Convert(const From* from, int64_t size, To* to) {
  for (int64_t i = 0; i < size; ++i) {
    to[i] = static_cast<To>(static_cast<float>(from[i]));
  }
}

// Memory for the converted tensors of one piece.
template <class T>
class Converted {
 public:
  explicit Converted(const Stretch& stretch) : stretch_(stretch) {}

  // Returns where the stretch of the tensor lies as T.
  T* Load(const at::Tensor& tensor) {
    if (!tensor.defined()) return nullptr;
    if (tensor.scalar_type() == c10::CppTypeToScalarType<T>::value) {
      return tensor.data_ptr<T>() + stretch_.begin;
    }
    memory_.emplace_back(static_cast<size_t>(stretch_.size));
    T* const to = memory_.back().data();
    if (tensor.scalar_type() == at::kHalf) {
      Convert(tensor.data_ptr<at::Half>() + stretch_.begin, stretch_.size, to);
    } else {
      Convert(tensor.data_ptr<at::BFloat16>() + stretch_.begin, stretch_.size,
              to);
    }
    return to;
  }

  // Brings what Load returned back to the tensor.
  void Store(const at::Tensor& tensor, const T* from) const {
    if (!tensor.defined()) return;
    if (tensor.scalar_type() == at::kHalf) {
      Convert(from, stretch_.size,
              tensor.data_ptr<at::Half>() + stretch_.begin);
    } else if (tensor.scalar_type() == at::kBFloat16) {
      Convert(from, stretch_.size,
              tensor.data_ptr<at::BFloat16>() + stretch_.begin);
    }
  }

 private:
  const Stretch stretch_;
  std::vector<std::vector<T>> memory_;
};

using Models = std::vector<std::vector<at::Tensor>>;

template <class T>
void Run(size_t index, const Stretch& stretch, const Models& read,
         const Models& written,
         absl::FunctionRef<void(const ModelPiece<T>&)> work) {
  Converted<T> converted(stretch);
  ModelPiece<T> piece = {.index = index,
                         .tensor = stretch.tensor,
                         .begin = stretch.begin,
                         .size = stretch.size};
  for (const auto& model : read) {
    piece.read.push_back(converted.Load(model[stretch.tensor]));
  }
  for (const auto& model : written) {
    piece.written.push_back(converted.Load(model[stretch.tensor]));
  }
  work(piece);
  for (size_t i = 0; i < written.size(); ++i) {
    converted.Store(written[i][stretch.tensor], piece.written[i]);
  }
}

// The pieces of several models.
class Pieces {
 public:
  Pieces(absl::Span<const NamedTensors* const> read,
         absl::Span<NamedTensors* const> written) {
    for (const NamedTensors* model : read) read_.push_back(RealTensors(*model));
    for (const NamedTensors* model : written) {
      written_.push_back(RealTensors(*model));
    }
    stretches_ = Stretches(read_.front());
  }

  size_t size() const { return stretches_.size(); }

  void ForEach(
      absl::FunctionRef<void(const ModelPiece<float>&)> work,
      absl::FunctionRef<void(const ModelPiece<double>&)> work_double) const {
    ParallelFor(static_cast<int64_t>(stretches_.size()), [&](int64_t i) {
      const auto index = static_cast<size_t>(i);
      const Stretch& stretch = stretches_[index];
      if (read_.front()[stretch.tensor].scalar_type() == at::kDouble) {
        Run<double>(index, stretch, read_, written_, work_double);
      } else {
        Run<float>(index, stretch, read_, written_, work);
      }
    });
  }

 private:
  Models read_;
  Models written_;
  std::vector<Stretch> stretches_;
};

}  // namespace

void ForEachPiece(
    absl::Span<const NamedTensors* const> read,
    absl::Span<NamedTensors* const> written,
    absl::FunctionRef<void(const ModelPiece<float>&)> work,
    absl::FunctionRef<void(const ModelPiece<double>&)> work_double) {
  Pieces(read, written).ForEach(work, work_double);
}

std::vector<WideSum> SumOverPieces(absl::Span<const NamedTensors* const> models,
                                   size_t num_sums, AddPiece<float> add,
                                   AddPiece<double> add_double) {
  static_assert(kPiece % kSumBlock == 0 && kNarrowPiece % kSumBlock == 0);
  const Pieces pieces(models, {});
  std::vector<WideSum> partial(pieces.size() * num_sums);
  const auto run = [&](const auto& piece, const auto& add_block) {
    std::vector<double> of_block(num_sums);
    auto block = piece;
    for (int64_t begin = 0; begin < piece.size; begin += kSumBlock) {
      block.begin = piece.begin + begin;
      block.size = std::min(kSumBlock, piece.size - begin);
      for (size_t m = 0; m < piece.read.size(); ++m) {
        block.read[m] = piece.read[m] + begin;
      }
      std::fill(of_block.begin(), of_block.end(), 0.0);
      add_block(block, absl::MakeSpan(of_block));
      for (size_t i = 0; i < num_sums; ++i) {
        partial[piece.index * num_sums + i].Add(of_block[i]);
      }
    }
  };
  pieces.ForEach([&](const auto& piece) { run(piece, add); },
                 [&](const auto& piece) { run(piece, add_double); });
  std::vector<WideSum> sums(num_sums);
  for (size_t i = 0; i < partial.size(); ++i) {
    sums[i % num_sums].Add(partial[i]);
  }
  return sums;
}

std::vector<const NamedTensors*> ModelsOf(
    absl::Span<const Contribution> contributions) {
  std::vector<const NamedTensors*> models;
  models.reserve(contributions.size());
  for (const Contribution& contribution : contributions) {
    models.push_back(&contribution.tensors);
  }
  return models;
}

}  // namespace miniray::ps
