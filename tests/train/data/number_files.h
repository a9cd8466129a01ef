// Files of consecutive numbers, and a reader of them that can be told to fail.

#ifndef MINIRAY_TESTS_TRAIN_DATA_NUMBER_FILES_H_
#define MINIRAY_TESTS_TRAIN_DATA_NUMBER_FILES_H_

#include <atomic>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tests/runtime/base/temp_folder.h"
#include "train/data/dataset.h"

namespace miniray::train {

// What readers do and have done. Outlives them.
struct ReaderLog {
  std::atomic<int64_t> reads = 0;    // Records, wherever they went.
  std::atomic<int64_t> opens = 0;    // Files.
  std::atomic<int64_t> skipped = 0;  // Records that were passed over.
  std::atomic<int64_t> live = 0;     // Rows in memory now, and at most.
  std::atomic<int64_t> most_live = 0;
  std::atomic<int64_t> fail_at = -1;   // The number whose record is an error.
  std::atomic<int64_t> throw_at = -1;  // The same as an exception.
  std::function<void()> on_read = [] {};
};

class NumberReader : public RecordReader {
 public:
  NumberReader(const std::string& path, ReaderLog* log) : log_(log) {
    std::ifstream(path) >> next_ >> end_;
    ++log_->opens;
  }

  absl::StatusOr<std::optional<Row>> Next() override {
    if (next_ == end_) return std::nullopt;
    log_->on_read();
    if (next_ == log_->fail_at) return absl::InternalError("bad checksum");
    if (next_ == log_->throw_at) throw std::runtime_error("bad magic");
    ++log_->reads;
    return Row{Counted(next_++)};
  }
  absl::Status Skip(int64_t count) override {
    log_->skipped += count;
    next_ += count;
    return absl::OkStatus();
  }

 private:
  // A scalar that says when it is gone.
  at::Tensor Counted(int64_t number) {
    const int64_t live = ++log_->live;
    int64_t most = log_->most_live;
    while (live > most && !log_->most_live.compare_exchange_weak(most, live)) {
    }
    return at::from_blob(
        new int64_t(number), {},
        [log = log_](void* memory) {
          delete static_cast<int64_t*>(memory);
          --log->live;
        },
        at::kLong);
  }

  ReaderLog* const log_;
  int64_t next_ = 0;
  int64_t end_ = 0;
};

// Files "a", "b", ... with so many numbers each, which go on from file to file.
class NumberFiles {
 public:
  explicit NumberFiles(const std::vector<int64_t>& sizes) {
    char name = 'a';
    for (const int64_t size : sizes) {
      paths_.push_back(folder_ / std::string(1, name++));
      std::ofstream(paths_.back()) << total_ << " " << total_ + size;
      total_ += size;
    }
  }

  const std::vector<std::string>& paths() const { return paths_; }
  int64_t total() const { return total_; }

  // Its column is "n".
  absl::StatusOr<Dataset> Make(ReaderLog* log) const {
    return Dataset::FromFiles(
        paths_,
        RecordFormat{
            .open = [log](const std::string& path)
                -> absl::StatusOr<std::unique_ptr<RecordReader>> {
              return std::make_unique<NumberReader>(path, log);
            },
            .count = [](const std::string& path) -> absl::StatusOr<int64_t> {
              int64_t begin = 0, end = 0;
              std::ifstream(path) >> begin >> end;
              return end - begin;
            }},
        {.columns = {"n"}});
  }

 private:
  TempFolder folder_;
  std::vector<std::string> paths_;
  int64_t total_ = 0;
};

using Batches = std::vector<std::vector<int64_t>>;

inline std::vector<int64_t> NumbersOf(const Batch& batch,
                                      const std::string& column = "n") {
  const at::Tensor numbers = batch[column].contiguous();
  return {numbers.data_ptr<int64_t>(),
          numbers.data_ptr<int64_t>() + numbers.numel()};
}

// What a loop over a stream sees.
inline Batches Loop(BatchStream stream, int stop_after = 1 << 30) {
  Batches batches;
  for (const Batch& batch : stream) {
    batches.push_back(NumbersOf(batch));
    if (--stop_after == 0) break;
  }
  return batches;
}

}  // namespace miniray::train

#endif  // MINIRAY_TESTS_TRAIN_DATA_NUMBER_FILES_H_
