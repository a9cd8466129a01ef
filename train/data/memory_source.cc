#include "train/data/memory_source.h"

#include <algorithm>
#include <optional>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {
namespace {

class TensorReader : public RecordReader {
 public:
  TensorReader(std::shared_ptr<const SourceSpec> spec, int64_t begin)
      : spec_(std::move(spec)), next_(begin) {}

  absl::StatusOr<std::optional<Row>> Next() override {
    const NamedTensors& columns = spec_->tensors.value;
    if (next_ >= columns[0].second.size(0)) return std::nullopt;
    Row row;
    row.reserve(columns.size());
    for (const auto& [name, tensor] : columns) {
      row.push_back(tensor.select(0, next_));
    }
    ++next_;
    return row;
  }
  absl::Status Skip(int64_t count) override {
    next_ += count;
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<const SourceSpec> spec_;
  int64_t next_;
};

absl::Status CheckTensors(const NamedTensors& columns, int64_t rows) {
  for (const auto& [name, tensor] : columns) {
    if (!tensor.defined() || tensor.dim() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("column \"", name, "\" has no rows: it is ",
                       tensor.defined() ? "a scalar" : "an undefined tensor",
                       "; expected a first dimension of rows"));
    }
    if (tensor.size(0) != rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("column \"", name, "\" has ", tensor.size(0),
                       " rows, column \"", columns[0].first, "\" ", rows));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const BlockSource>> MemorySource::Create(
    SourceSpec spec) {
  int64_t rows = 0;
  for (const SourceBlock& block : spec.blocks) {
    if (block.first_record != rows) {
      return absl::InvalidArgumentError("rows of a data set do not follow");
    }
    rows += block.records;
  }
  const NamedTensors& tensors = spec.tensors.value;
  if (tensors.size() != spec.columns.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        tensors.size(), " tensors for ", spec.columns.size(), " columns"));
  }
  MR_RETURN_IF_ERROR(CheckTensors(tensors, rows));
  return std::shared_ptr<const BlockSource>(new MemorySource(std::move(spec)));
}

absl::StatusOr<std::unique_ptr<RecordReader>> MemorySource::Open(
    const SourceBlock& block) const {
  return std::make_unique<TensorReader>(shared_spec(), block.first_record);
}

absl::StatusOr<SourceSpec> SpecOfTensors(NamedTensors columns,
                                         int64_t rows_per_block) {
  if (rows_per_block < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rows_per_block is ", rows_per_block, "; expected at least 1"));
  }
  SourceSpec spec;
  spec.kind = kMemoryKind;
  for (auto& [name, tensor] : columns) {
    spec.columns.push_back(name);
    if (tensor.defined()) tensor = tensor.detach();
  }
  MR_RETURN_IF_ERROR(CheckColumnNames(spec.columns));
  const at::Tensor& first = columns[0].second;
  const int64_t rows = first.defined() && first.dim() > 0 ? first.size(0) : 0;
  MR_RETURN_IF_ERROR(CheckTensors(columns, rows));
  for (int64_t begin = 0; begin < rows; begin += rows_per_block) {
    spec.blocks.push_back({.records = std::min(rows_per_block, rows - begin),
                           .first_record = begin});
  }
  spec.tensors.value = std::move(columns);
  return spec;
}

}  // namespace miniray::train
