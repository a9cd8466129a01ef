// Rows and batches of a Dataset: named columns of tensors.

#ifndef MINIRAY_TRAIN_DATA_ROW_H_
#define MINIRAY_TRAIN_DATA_ROW_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace miniray::train {

// One record: a tensor for each column, in the data set's order of columns.
// Scalars are tensors of shape [].
using Row = std::vector<at::Tensor>;

using ColumnNames = std::shared_ptr<const std::vector<std::string>>;

// B rows, stacked: a column whose rows are [3, 32, 32] is [B, 3, 32, 32]. Like
// a tensor, a copy is cheap and refers to the same memory.
class Batch {
 public:
  Batch() = default;
  // columns: [size, ...] each, as many as names.
  Batch(ColumnNames names, std::vector<at::Tensor> columns, int64_t size);

  // Returns a column, [B, ...]. Throws std::out_of_range, which lists the
  // columns that there are, for a name that is none of them.
  const at::Tensor& operator[](absl::string_view name) const;

  void MoveTo(const c10::Device& device);

  const std::vector<std::string>& names() const { return *names_; }
  const std::vector<at::Tensor>& columns() const { return columns_; }
  int64_t size() const { return size_; }  // B, from 1.

 private:
  ColumnNames names_ = std::make_shared<const std::vector<std::string>>();
  std::vector<at::Tensor> columns_;
  int64_t size_ = 0;
};

// Stacks `rows`, at least one. Errors: INVALID_ARGUMENT, a row has not as many
// tensors as there are names; a column's rows differ in shape or element type,
// with the column and both.
absl::StatusOr<Batch> StackRows(const ColumnNames& names,
                                absl::Span<const Row> rows);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_ROW_H_
