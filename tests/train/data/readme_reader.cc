// The third example of train/data/README.md.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "ATen/ATen.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/data/record_reader.h"

namespace miniray {

// README begins.
// CIFAR-10's binary files: a byte of label, 3 x 32 x 32 of an image, and so on.
class Cifar10Reader : public train::RecordReader {
 public:
  static constexpr int64_t kRecordBytes = 1 + 3 * 32 * 32;

  explicit Cifar10Reader(const std::string& path)
      : file_(path, std::ios::binary) {}

  absl::StatusOr<std::optional<train::Row>> Next() override {
    const int label = file_.get();
    if (label == EOF) return std::nullopt;
    at::Tensor image = at::empty({3, 32, 32}, at::kByte);
    if (!file_.read(static_cast<char*>(image.data_ptr()), kRecordBytes - 1)) {
      return absl::DataLossError("the image is cut off");
    }
    return train::Row{image, at::scalar_tensor(label, at::kLong)};
  }

  absl::Status Skip(int64_t count) override {
    file_.seekg(count * kRecordBytes, std::ios::cur);
    return absl::OkStatus();
  }

 private:
  std::ifstream file_;
};

MINIRAY_RECORD_READER(
    "cifar10",
    {.open = [](const std::string& path)
         -> absl::StatusOr<std::unique_ptr<train::RecordReader>> {
       return std::make_unique<Cifar10Reader>(path);
     },
     .count = [](const std::string& path) -> absl::StatusOr<int64_t> {
       return std::filesystem::file_size(path) / Cifar10Reader::kRecordBytes;
     }});
// README ends.

}  // namespace miniray
