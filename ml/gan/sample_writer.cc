#include "ml/gan/sample_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ml/image/grid.h"
#include "ml/image/png.h"
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

absl::StatusOr<SamplePicture> EncodeSamples(const at::Tensor& images,
                                            int columns, size_t max_bytes) {
  at::Tensor shown = images;
  while (true) {
    const at::Tensor grid = MakeGrid(shown, columns);
    MR_ASSIGN_OR_RETURN(std::string png, EncodePng(grid));
    if (png.size() <= max_bytes) {
      return SamplePicture{.png = std::move(png),
                           .width = static_cast<int>(grid.size(2)),
                           .height = static_cast<int>(grid.size(1))};
    }
    const int64_t height = shown.size(2);
    const int64_t width = shown.size(3);
    if (height == 1 && width == 1) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a picture of ", shown.size(0), " images has more than ",
                       max_bytes, " bytes"));
    }
    shown = shown.slice(2, 0, height, 2).slice(3, 0, width, 2);
  }
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
