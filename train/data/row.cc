#include "train/data/row.h"

#include <cstring>
#include <stdexcept>
#include <utility>

#include "ATen/ATen.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace miniray::train {
namespace {

std::string Describe(const at::Tensor& tensor) {
  return absl::StrCat(c10::toString(tensor.scalar_type()), "[",
                      absl::StrJoin(tensor.sizes(), ", "), "]");
}

// Not at::stack where it can be helped: that starts OpenMP's threads anew for
// each thread that calls it with much.
at::Tensor Stack(absl::Span<const Row> rows, size_t column) {
  const at::Tensor& first = rows[0][column];
  std::vector<at::Tensor> elements;
  elements.reserve(rows.size());
  bool plain = true;
  for (const Row& row : rows) {
    elements.push_back(row[column]);
    plain = plain && row[column].is_cpu() && row[column].is_contiguous() &&
            row[column].layout() == at::kStrided;
  }
  if (!plain) return at::stack(elements);
  std::vector<int64_t> sizes = {static_cast<int64_t>(rows.size())};
  sizes.insert(sizes.end(), first.sizes().begin(), first.sizes().end());
  at::Tensor stacked = at::empty(sizes, first.options().requires_grad(false));
  const size_t bytes = first.nbytes();
  if (bytes == 0) return stacked;
  char* to = static_cast<char*>(stacked.data_ptr());
  for (const at::Tensor& element : elements) {
    std::memcpy(to, element.data_ptr(), bytes);
    to += bytes;
  }
  return stacked;
}

}  // namespace

Batch::Batch(ColumnNames names, std::vector<at::Tensor> columns, int64_t size)
    : names_(std::move(names)), columns_(std::move(columns)), size_(size) {}

void Batch::MoveTo(const c10::Device& device) {
  for (at::Tensor& column : columns_) column = column.to(device);
}

const at::Tensor& Batch::operator[](absl::string_view name) const {
  for (size_t i = 0; i < columns_.size(); ++i) {
    if ((*names_)[i] == name) return columns_[i];
  }
  throw std::out_of_range(absl::StrCat(
      "no column \"", name,
      "\" in the batch; there are: ", absl::StrJoin(*names_, ", ")));
}

absl::StatusOr<Batch> StackRows(const ColumnNames& names,
                                absl::Span<const Row> rows) {
  if (rows.empty()) return absl::InvalidArgumentError("no rows to stack");
  for (const Row& row : rows) {
    if (row.size() != names->size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a row has ", row.size(), " tensors; expected ", names->size(),
          ", one for each of the columns ", absl::StrJoin(*names, ", ")));
    }
    for (size_t i = 0; i < row.size(); ++i) {
      if (!row[i].defined()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "column \"", (*names)[i], "\" of a row is an undefined tensor"));
      }
      const at::Tensor& first = rows[0][i];
      if (row[i].sizes() != first.sizes() ||
          row[i].scalar_type() != first.scalar_type()) {
        return absl::InvalidArgumentError(
            absl::StrCat("column \"", (*names)[i],
                         "\" cannot be stacked into a batch: a "
                         "row is ",
                         Describe(row[i]), ", another ", Describe(first)));
      }
    }
  }
  std::vector<at::Tensor> columns;
  columns.reserve(names->size());
  for (size_t i = 0; i < names->size(); ++i) columns.push_back(Stack(rows, i));
  return Batch(names, std::move(columns), static_cast<int64_t>(rows.size()));
}

}  // namespace miniray::train
