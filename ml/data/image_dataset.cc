#include "ml/data/image_dataset.h"

#include <cstring>

#include "ATen/ops/empty.h"
#include "absl/strings/str_cat.h"
#include "ml/data/describe_tensor.h"

namespace miniray::ml {
absl::Status ValidateImageDataset(const ImageDataset& dataset) {
  const at::Tensor& images = dataset.images;
  const at::Tensor& labels = dataset.labels;
  if (!images.defined() || images.scalar_type() != at::kByte ||
      images.dim() != 4 || images.numel() == 0 || !images.device().is_cpu() ||
      !images.is_contiguous()) {
    return absl::InvalidArgumentError(
        absl::StrCat("images are ", DescribeTensor(images),
                     "; expected contiguous uint8 [N, C, H, W] on the CPU, "
                     "each at least 1"));
  }
  if (!labels.defined() || labels.scalar_type() != at::kLong ||
      labels.dim() != 1 || labels.size(0) != images.size(0) ||
      !labels.device().is_cpu() || !labels.is_contiguous()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "labels are ", DescribeTensor(labels), "; expected contiguous int64 [",
        images.size(0), "] on the CPU, one for each image"));
  }
  const int64_t* label = labels.data_ptr<int64_t>();
  for (int64_t i = 0; i < labels.size(0); ++i) {
    if (label[i] < 0 || label[i] >= dataset.num_classes()) {
      return absl::InvalidArgumentError(
          absl::StrCat("label ", i, " is ", label[i], "; expected 0 to ",
                       dataset.num_classes() - 1, " for ",
                       dataset.num_classes(), " class names"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ImageBatch> GatherBatch(const ImageDataset& dataset,
                                       absl::Span<const int64_t> indices) {
  if (indices.empty()) {
    return absl::InvalidArgumentError("a batch needs at least one index");
  }
  const int64_t batch_size = static_cast<int64_t>(indices.size());
  for (int64_t b = 0; b < batch_size; ++b) {
    if (indices[b] < 0 || indices[b] >= dataset.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("index ", indices[b], " at position ", b,
                       " of the batch; expected 0 to ", dataset.size() - 1));
    }
  }
  ImageBatch batch;
  batch.images = at::empty(
      {batch_size, dataset.channels(), dataset.height(), dataset.width()},
      at::kByte);
  batch.labels = at::empty({batch_size}, at::kLong);
  const int64_t image_bytes =
      dataset.channels() * dataset.height() * dataset.width();
  const uint8_t* images = dataset.images.data_ptr<uint8_t>();
  const int64_t* labels = dataset.labels.data_ptr<int64_t>();
  uint8_t* batch_images = batch.images.data_ptr<uint8_t>();
  int64_t* batch_labels = batch.labels.data_ptr<int64_t>();
  for (int64_t b = 0; b < batch_size; ++b) {
    std::memcpy(batch_images + b * image_bytes,
                images + indices[b] * image_bytes, image_bytes);
    batch_labels[b] = labels[indices[b]];
  }
  return batch;
}

at::Tensor ToUnitRange(const at::Tensor& images) {
  TORCH_CHECK(images.scalar_type() == at::kByte,
              "ToUnitRange takes uint8 images, not ", images.scalar_type());
  // A division, so that 255 gives 1 exactly; times 1 / 127.5f would not.
  return images.to(at::kFloat).div_(127.5).sub_(1.0);
}

}  // namespace miniray::ml
