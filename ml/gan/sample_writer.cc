#include "ml/gan/sample_writer.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "ml/image/grid.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

constexpr int kRows = 8;
constexpr int kColumns = 8;
constexpr int64_t kMostClassColumns = 16;

}  // namespace

SampleGrid SampleGridFor(int64_t classes) {
  // Image i is of class i mod K, so K columns are a class each.
  const int columns = classes > 0 && classes <= kMostClassColumns
                          ? static_cast<int>(classes)
                          : kColumns;
  return {.images = int64_t{kRows} * columns, .columns = columns};
}

SampleWriter::SampleWriter(std::string folder, int every)
    : folder_(std::move(folder)), every_(every) {}

absl::Status SampleWriter::Write(int epoch, const at::Tensor& images,
                                 int columns) const {
  MR_RETURN_IF_ERROR(MakeDirectories(folder_));
  return SaveImageGrid(absl::StrFormat("%s/epoch-%04d.png", folder_, epoch + 1),
                       images, columns);
}

}  // namespace miniray::ml
