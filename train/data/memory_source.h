// Rows that are in memory. Not for users.

#ifndef MINIRAY_TRAIN_DATA_MEMORY_SOURCE_H_
#define MINIRAY_TRAIN_DATA_MEMORY_SOURCE_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/tensor/tensor_codec.h"
#include "train/data/block_source.h"

namespace miniray::train {

inline constexpr char kMemoryKind[] = "memory";

class MemorySource : public BlockSource {
 public:
  // Errors: INVALID_ARGUMENT, tensors that are not as long as the blocks.
  static absl::StatusOr<std::shared_ptr<const BlockSource>> Create(
      SourceSpec spec);

  absl::StatusOr<std::unique_ptr<RecordReader>> Open(
      const SourceBlock& block) const override;

 private:
  explicit MemorySource(SourceSpec spec) : BlockSource(std::move(spec)) {}
};

// Returns the description of a data set of the rows of `columns`, in blocks of
// `rows_per_block`. Errors: INVALID_ARGUMENT, those of Dataset::FromTensors.
absl::StatusOr<SourceSpec> SpecOfTensors(NamedTensors columns,
                                         int64_t rows_per_block);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_MEMORY_SOURCE_H_
