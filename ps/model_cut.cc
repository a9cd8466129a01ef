#include "ps/model_cut.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/copy.h"
#include "runtime/base/status_macros.h"

namespace miniray::ps {
namespace {

// A place where a model may be cut: before this element of the tensor.
struct CutPoint {
  size_t tensor;
  int64_t element;
  int64_t bytes;  // Of all that lies before it.
};

std::vector<CutPoint> CutPoints(const NamedTensors& model) {
  std::vector<CutPoint> points;
  int64_t bytes = 0;
  for (size_t i = 0; i < model.size(); ++i) {
    const at::Tensor& tensor = model[i].second;
    const auto item = static_cast<int64_t>(tensor.element_size());
    for (int64_t element = 0; element == 0 || element < tensor.numel();
         element += kCutGrid) {
      points.push_back({i, element, bytes + element * item});
    }
    bytes += tensor.numel() * item;
  }
  points.push_back({model.size(), 0, bytes});
  return points;
}

// The elements between two points.
ModelPart Between(const NamedTensors& model, const CutPoint& from,
                  const CutPoint& to) {
  ModelPart part;
  for (size_t i = from.tensor; i < model.size() && i <= to.tensor; ++i) {
    const int64_t begin = i == from.tensor ? from.element : 0;
    const int64_t end = i == to.tensor ? to.element : model[i].second.numel();
    if (i == to.tensor && to.element == 0) break;
    part.push_back({.tensor = i, .begin = begin, .size = end - begin});
  }
  return part;
}

bool IsWhole(const at::Tensor& tensor, const TensorRange& range) {
  return range.begin == 0 && range.size == tensor.numel();
}

absl::Status NotParts(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the parts of a model do not fit together: ", what));
}

// Number of elements; -1 if there are more than memory can hold.
int64_t NumElements(const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(numel, size, &numel)) return -1;
  }
  return numel;
}

}  // namespace

absl::StatusOr<std::vector<ModelPart>> CutModel(const NamedTensors& model,
                                                int64_t num_parts) {
  const std::vector<CutPoint> points = CutPoints(model);
  const auto last = static_cast<int64_t>(points.size()) - 1;
  if (num_parts < 1 || num_parts > last) {
    return absl::InvalidArgumentError(
        absl::StrCat("a model of ", model.size(), " tensors with ",
                     points.back().bytes, " bytes cannot be cut into ",
                     num_parts, " parts; use num_shards from 1 to ", last));
  }
  std::vector<ModelPart> parts;
  int64_t begin = 0;
  for (int64_t part = 1; part <= num_parts; ++part) {
    const double share = static_cast<double>(points.back().bytes) *
                         static_cast<double>(part) /
                         static_cast<double>(num_parts);
    int64_t end = begin + 1;
    if (part == num_parts) end = last;
    // As close to the share as can be, with a point left for each other part.
    while (end < last - (num_parts - part) &&
           std::abs(static_cast<double>(points[end + 1].bytes) - share) <
               std::abs(static_cast<double>(points[end].bytes) - share)) {
      ++end;
    }
    parts.push_back(Between(model, points[begin], points[end]));
    begin = end;
  }
  return parts;
}

int64_t MaxParts(const NamedTensors& model) {
  return static_cast<int64_t>(CutPoints(model).size()) - 1;
}

NamedTensors TensorsOfPart(const NamedTensors& model, const ModelPart& part) {
  NamedTensors tensors;
  for (const TensorRange& range : part) {
    const auto& [name, tensor] = model[range.tensor];
    tensors.emplace_back(
        name, IsWhole(tensor, range)
                  ? tensor
                  : tensor.detach().cpu().contiguous().view({-1}).slice(
                        0, range.begin, range.begin + range.size));
  }
  return tensors;
}

void CopyPart(const NamedTensors& tensors, const ModelPart& part,
              NamedTensors* model) {
  for (size_t i = 0; i < part.size(); ++i) {
    const at::Tensor from = tensors[i].second.detach().cpu().contiguous();
    const at::Tensor& to = (*model)[part[i].tensor].second;
    if (from.nbytes() == 0) continue;
    CopyLarge(static_cast<char*>(to.data_ptr()) +
                  static_cast<size_t>(part[i].begin) * to.element_size(),
              from.data_ptr(), from.nbytes());
  }
}

std::vector<TensorPart> PlacesOfPart(const NamedTensors& model,
                                     const ModelPart& part) {
  std::vector<TensorPart> places;
  for (const TensorRange& range : part) {
    places.push_back({.begin = range.begin,
                      .shape = model[range.tensor].second.sizes().vec()});
  }
  return places;
}

absl::StatusOr<NamedTensors> JoinParts(
    absl::Span<const WeightMessage* const> messages) {
  struct Whole {
    const TensorPart* place;
    std::vector<const at::Tensor*> pieces;
    int64_t numel, filled;
  };
  std::vector<std::pair<std::string, Whole>> wholes;
  const auto is_full = [&wholes] {
    return wholes.empty() ||
           wholes.back().second.filled == wholes.back().second.numel;
  };
  for (const WeightMessage* message : messages) {
    if (message->parts.size() != message->tensors.size()) {
      return NotParts("one does not tell where its tensors lie");
    }
    for (size_t i = 0; i < message->tensors.size(); ++i) {
      const auto& [name, tensor] = message->tensors[i];
      const TensorPart& place = message->parts[i];
      if (!tensor.defined() || tensor.layout() != at::kStrided) {
        return NotParts(absl::StrCat("'", name, "' is no dense tensor"));
      }
      if (place.begin == 0 && is_full()) {
        wholes.push_back({name, {&place, {}, NumElements(place.shape), 0}});
      }
      if (wholes.empty()) return NotParts("the beginning is missing");
      auto& [whole_name, whole] = wholes.back();
      if (whole_name != name || whole.filled != place.begin ||
          whole.place->shape != place.shape ||
          tensor.numel() > whole.numel - whole.filled ||
          (!whole.pieces.empty() &&
           whole.pieces[0]->scalar_type() != tensor.scalar_type())) {
        return NotParts(absl::StrCat("a piece of '", whole_name,
                                     "' is missing, or one of '", name,
                                     "' is not where it belongs"));
      }
      whole.pieces.push_back(&tensor);
      whole.filled += tensor.numel();
    }
  }
  if (!is_full()) {
    return NotParts(
        absl::StrCat("the end of '", wholes.back().first, "' is missing"));
  }
  NamedTensors model;
  for (const auto& [name, whole] : wholes) {
    at::Tensor tensor = at::empty(
        whole.place->shape, at::dtype(whole.pieces.front()->scalar_type()));
    char* to = static_cast<char*>(tensor.data_ptr());
    for (const at::Tensor* piece : whole.pieces) {
      const at::Tensor bytes = piece->detach().cpu().contiguous();
      CopyLarge(to, bytes.data_ptr(), bytes.nbytes());
      to += bytes.nbytes();
    }
    model.emplace_back(name, std::move(tensor));
  }
  return model;
}

}  // namespace miniray::ps
