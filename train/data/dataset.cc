#include "train/data/dataset.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "train/data/block_source.h"
#include "train/data/csv_source.h"
#include "train/data/file_source.h"
#include "train/data/memory_source.h"

namespace miniray::train {
namespace {

absl::StatusOr<Dataset> FromSpec(absl::StatusOr<SourceSpec> spec) {
  MR_RETURN_IF_ERROR(spec.status());
  MR_ASSIGN_OR_RETURN(auto source, MakeSource(*std::move(spec)));
  return Dataset(std::move(source));
}

}  // namespace

absl::StatusOr<Dataset> Dataset::FromFiles(std::vector<std::string> paths,
                                           const std::string& format,
                                           FilesOptions options) {
  MR_ASSIGN_OR_RETURN(const RecordFormat found, FindRecordFormat(format));
  return FromSpec(
      SpecOfFiles(paths, format, found, std::move(options.columns)));
}

absl::StatusOr<Dataset> Dataset::FromFiles(std::vector<std::string> paths,
                                           RecordFormat format,
                                           FilesOptions options) {
  MR_ASSIGN_OR_RETURN(SourceSpec spec, SpecOfFiles(paths, "", format,
                                                   std::move(options.columns)));
  MR_RETURN_IF_ERROR(CheckSpec(spec));
  return Dataset(
      std::make_shared<FileSource>(std::move(spec), std::move(format)));
}

absl::StatusOr<Dataset> Dataset::FromCsv(std::vector<std::string> paths,
                                         CsvOptions options) {
  return FromSpec(SpecOfCsv(paths, options));
}

absl::StatusOr<Dataset> Dataset::FromTensors(NamedTensors columns,
                                             RowsOptions options) {
  return FromSpec(SpecOfTensors(std::move(columns), options.rows_per_block));
}

absl::StatusOr<Dataset> Dataset::FromRows(std::vector<std::string> columns,
                                          const std::vector<Row>& rows,
                                          RowsOptions options) {
  MR_ASSIGN_OR_RETURN(
      const Batch stacked,
      StackRows(std::make_shared<const std::vector<std::string>>(columns),
                rows));
  NamedTensors tensors;
  for (size_t i = 0; i < columns.size(); ++i) {
    tensors.emplace_back(columns[i], stacked.columns()[i]);
  }
  return FromTensors(std::move(tensors), options);
}

int64_t Dataset::size() const { return source_->size(); }

const std::vector<std::string>& Dataset::columns() const {
  return *source_->columns();
}

absl::StatusOr<DatasetShard> Dataset::Shard(int rank, int world_size) const {
  if (world_size < 1 || rank < 0 || rank >= world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no rank ", rank, " in a world of ", world_size,
                     "; expected 0 to world_size - 1"));
  }
  if (source_ == nullptr) {
    return absl::FailedPreconditionError("this data set was not made");
  }
  return DatasetShard(source_, rank, world_size);
}

}  // namespace miniray::train

namespace miniray {

absl::Status Codec<train::Dataset>::Encode(const train::Dataset& dataset,
                                           WireWriter* out) {
  if (dataset.source_ == nullptr) {
    return absl::FailedPreconditionError(
        "a data set that was not made cannot be sent");
  }
  MR_ASSIGN_OR_RETURN(const train::SourceSpec spec, dataset.source_->Spec());
  return Codec<train::SourceSpec>::Encode(spec, out);
}

absl::Status Codec<train::Dataset>::Decode(const ValueView& view,
                                           train::Dataset* out) {
  train::SourceSpec spec;
  MR_RETURN_IF_ERROR(Codec<train::SourceSpec>::Decode(view, &spec));
  MR_ASSIGN_OR_RETURN(auto source, train::MakeSource(std::move(spec)));
  *out = train::Dataset(std::move(source));
  return absl::OkStatus();
}

}  // namespace miniray
