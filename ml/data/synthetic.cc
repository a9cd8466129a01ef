#include "ml/data/synthetic.h"

#include <algorithm>
#include <string>
#include <utility>

#include "ATen/ops/empty.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ml/data/mix64.h"
#include "ml/data/tensor_allocation.h"
#include "runtime/base/status_macros.h"

namespace miniray::ml {
namespace {

constexpr int64_t kMaxPixels = int64_t{1} << 36;

absl::Status CheckOptions(const SyntheticOptions& options) {
  // Classes count too: each takes a name.
  const std::pair<absl::string_view, int64_t> sizes[] = {
      {"count", options.count},
      {"channels", options.channels},
      {"height", options.height},
      {"width", options.width},
      {"num_classes", options.num_classes}};
  int64_t pixels = 1;
  for (const auto& [name, size] : sizes) {
    if (size < 1 || size > kMaxPixels) {
      return absl::InvalidArgumentError(absl::StrCat(
          "synthetic ", name, " is ", size, "; expected 1 to ", kMaxPixels));
    }
    if (name == "num_classes") break;
    if (size > kMaxPixels / pixels) {
      return absl::InvalidArgumentError(absl::StrCat(
          "synthetic images [", options.count, ", ", options.channels, ", ",
          options.height, ", ", options.width, "] have more than ", kMaxPixels,
          " pixels"));
    }
    pixels *= size;
  }
  return absl::OkStatus();
}

// A class's tile: rows [top, bottom), columns [left, right).
struct Tile {
  int64_t top, bottom, left, right;
};

Tile TileOf(int64_t label, const SyntheticOptions& options) {
  int64_t side = 1;
  while (side * side < options.num_classes) ++side;
  const int64_t row = label / side;
  const int64_t column = label % side;
  Tile tile;
  tile.top = row * options.height / side;
  tile.bottom = std::max(tile.top + 1, (row + 1) * options.height / side);
  tile.left = column * options.width / side;
  tile.right = std::max(tile.left + 1, (column + 1) * options.width / side);
  return tile;
}

// Writes one image, [C, H, W].
void Draw(const SyntheticOptions& options, uint64_t image_seed, int64_t label,
          uint8_t* pixel) {
  const Tile tile = TileOf(label, options);
  uint64_t noise = 0;
  int64_t drawn = 0;
  for (int64_t c = 0; c < options.channels; ++c) {
    const int64_t shade = 224 - 48 * ((label + c) % 3);
    for (int64_t y = 0; y < options.height; ++y) {
      for (int64_t x = 0; x < options.width; ++x) {
        // Eight pixels' noise from each draw.
        if (drawn % 8 == 0) noise = Mix64(image_seed + drawn / 8);
        ++drawn;
        const int64_t speckle = noise & 31;
        noise >>= 8;
        const bool bright = y >= tile.top && y < tile.bottom &&
                            x >= tile.left && x < tile.right;
        *pixel++ = static_cast<uint8_t>((bright ? shade : 32) + speckle);
      }
    }
  }
}

}  // namespace

absl::StatusOr<ImageDataset> MakeSyntheticDataset(
    const SyntheticOptions& options, Split split,
    const ShardSelection& selection) {
  MR_RETURN_IF_ERROR(CheckOptions(options));
  MR_ASSIGN_OR_RETURN(const ShardRange range,
                      SelectRange(options.count, selection));
  const int64_t image_bytes = options.channels * options.height * options.width;
  MR_ASSIGN_OR_RETURN(
      at::Tensor pixels,
      AllocateBytes(range.size() * image_bytes, "synthetic images"));
  ImageDataset dataset;
  dataset.images = pixels.view(
      {range.size(), options.channels, options.height, options.width});
  dataset.labels = at::empty({range.size()}, at::kLong);

  const uint64_t split_seed =
      Mix64(Mix64(options.seed) + (split == Split::kTrain ? 0 : 1));
  uint8_t* image = pixels.data_ptr<uint8_t>();
  int64_t* labels = dataset.labels.data_ptr<int64_t>();
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int64_t label = i % options.num_classes;
    Draw(options, Mix64(split_seed + i), label, image);
    *labels++ = label;
    image += image_bytes;
  }
  for (int64_t k = 0; k < options.num_classes; ++k) {
    dataset.class_names.push_back(absl::StrCat("class ", k));
  }
  return dataset;
}

}  // namespace miniray::ml
