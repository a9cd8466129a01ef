#include "tools/bench/peers/memory.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace miniray::bench {

void FillPattern(int64_t bytes, std::vector<char>* out) {
  if (static_cast<int64_t>(out->size()) == bytes) return;
  out->resize(static_cast<size_t>(bytes));
  for (int64_t i = 0; i < bytes / static_cast<int64_t>(sizeof(float)); ++i) {
    const float value = PatternAt(i);
    std::memcpy(out->data() + i * sizeof(float), &value, sizeof(float));
  }
}

absl::Status CheckPattern(const char* data, size_t size, int64_t expected) {
  bool good = static_cast<int64_t>(size) == expected;
  for (int64_t i = 0;
       good && i < expected / static_cast<int64_t>(sizeof(float)); ++i) {
    float value;
    std::memcpy(&value, data + i * sizeof(float), sizeof(float));
    good = value == PatternAt(i);
  }
  if (good) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "other bytes arrived than were sent (", size, " of ", expected, ")"));
}

double Sum(const float* data, int64_t count) {
  constexpr int kStreams = 32;
  float sums[kStreams] = {};
  double total = 0;
  int64_t i = 0;
  while (i + kStreams <= count) {
    // Floats of a short stretch lose nothing that matters here.
    const int64_t end = std::min(count - kStreams, i + 64 * kStreams);
    for (; i <= end; i += kStreams) {
      for (int j = 0; j < kStreams; ++j) sums[j] += data[i + j];
    }
    for (float& sum : sums) {
      total += sum;
      sum = 0;
    }
  }
  for (; i < count; ++i) total += data[i];
  return total;
}

WarmMemory::WarmMemory(int64_t bytes) : to_(static_cast<size_t>(bytes)) {
  FillPattern(bytes, &from_);
}

double WarmMemory::Copy() {
  const absl::Time start = absl::Now();
  std::memcpy(to_.data(), from_.data(), from_.size());
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  // Used, so that the copy is made.
  sum_ += to_[to_.size() / 2];
  return seconds;
}

double WarmMemory::CopyOnAllCores() {
  const size_t cores = std::max(1U, std::thread::hardware_concurrency());
  const auto copy_part = [&](size_t part) {
    const size_t begin = from_.size() * part / cores;
    const size_t end = from_.size() * (part + 1) / cores;
    std::memcpy(to_.data() + begin, from_.data() + begin, end - begin);
  };
  const absl::Time start = absl::Now();
  std::vector<std::thread> others;
  for (size_t part = 1; part < cores; ++part) {
    others.emplace_back(copy_part, part);
  }
  copy_part(0);
  for (std::thread& other : others) other.join();
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  // Used, so that the copy is made.
  sum_ += to_[to_.size() / 2];
  return seconds;
}

double WarmMemory::Read() {
  const absl::Time start = absl::Now();
  sum_ += Sum(reinterpret_cast<const float*>(from_.data()),
              static_cast<int64_t>(from_.size() / sizeof(float)));
  return absl::ToDoubleSeconds(absl::Now() - start);
}

}  // namespace miniray::bench
