#include "runtime/shm/shared_memory.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "glog/logging.h"
#include "runtime/base/background.h"
#include "runtime/base/memory_limit.h"

namespace miniray {
namespace {

// Each takes a file descriptor.
constexpr size_t kMaxSegments = 128;

constexpr size_t kPage = 4096;

constexpr uint64_t kMaxMegabytes = uint64_t{1} << 40;  // No overflow in bytes.

// Sizes are rounded up, so that messages of about one size share segments.
size_t RoundUp(size_t size) {
  size_t step = kPage;
  while (step * 16 < size) step *= 2;
  return (size + step - 1) / step * step;
}

// A segment may be this much larger than what it serves for.
bool Serves(size_t capacity, size_t size) {
  return capacity >= size && capacity / 2 <= size + kPage;
}

uint64_t LimitFromEnvironment() {
  const char* const value = std::getenv("MINIRAY_SHARED_MEMORY_MB");
  if (value != nullptr) {
    uint64_t megabytes;
    if (absl::SimpleAtoi(value, &megabytes) && megabytes <= kMaxMegabytes) {
      return megabytes << 20;
    }
    LOG(WARNING) << "MINIRAY_SHARED_MEMORY_MB=" << value
                 << " is not a number from 0 to " << kMaxMegabytes
                 << "; a quarter of the memory that may be used is the limit";
  }
  return static_cast<uint64_t>(UsableMemoryBytes()) / 4;
}

}  // namespace

SharedBlock::~SharedBlock() { pool_->Return(std::move(segment_)); }

SharedMemory& SharedMemory::Get() {
  // Never destroyed: blocks may outlive main.
  static SharedMemory* const pool =
      new SharedMemory({.max_bytes = LimitFromEnvironment()});
  return *pool;
}

std::shared_ptr<SharedBlock> SharedMemory::Allocate(size_t size) {
  std::unique_ptr<Segment> segment;
  std::vector<Free> dropped;  // Unmapped unlocked: that takes long.
  const size_t capacity = RoundUp(size);
  {
    absl::MutexLock lock(&mu_);
    if (size == 0 || capacity > options_.max_bytes) return nullptr;
    segment = TakeFree(size);
    if (segment == nullptr) {
      while ((bytes_ + capacity > options_.max_bytes ||
              segments_ >= kMaxSegments) &&
             !free_.empty()) {
        bytes_ -= free_.front().segment->capacity();
        --segments_;
        dropped.push_back(std::move(free_.front()));
        free_.erase(free_.begin());
      }
      if (bytes_ + capacity > options_.max_bytes || segments_ >= kMaxSegments) {
        return nullptr;
      }
      bytes_ += capacity;
      ++segments_;
    }
  }
  if (segment == nullptr) {
    absl::StatusOr<std::unique_ptr<Segment>> made = Segment::Create(capacity);
    if (!made.ok()) {
      absl::MutexLock lock(&mu_);
      bytes_ -= capacity;
      --segments_;
      return nullptr;
    }
    segment = *std::move(made);
  }
  std::shared_ptr<SharedBlock> block(
      new SharedBlock(this, std::move(segment), size));
  absl::MutexLock lock(&mu_);
  used_[block->data() + block->segment_->capacity()] = block;
  return block;
}

std::unique_ptr<Segment> SharedMemory::TakeFree(size_t size) {
  // The one that was used last is the warmest.
  for (auto it = free_.rbegin(); it != free_.rend(); ++it) {
    if (!Serves(it->segment->capacity(), size) || !it->segment->Claim()) {
      continue;
    }
    std::unique_ptr<Segment> taken = std::move(it->segment);
    free_.erase(std::next(it).base());
    return taken;
  }
  return nullptr;
}

void SharedMemory::Return(std::unique_ptr<Segment> segment) {
  absl::MutexLock lock(&mu_);
  used_.erase(segment->data() + segment->capacity());
  free_.push_back({std::move(segment), absl::Now()});
  TrimLater();
}

std::shared_ptr<SharedBlock> SharedMemory::Find(const void* address) const {
  const auto* const wanted = static_cast<const char*>(address);
  std::shared_ptr<SharedBlock> block;  // May be the last holder: dies unlocked.
  absl::MutexLock lock(&mu_);
  const auto it = used_.upper_bound(wanted);
  if (it == used_.end()) return nullptr;
  block = it->second.lock();
  if (block == nullptr || wanted < block->data()) return nullptr;
  return block;
}

const Segment* SharedMemory::probe() {
  absl::MutexLock lock(&mu_);
  if (!probed_) {
    probed_ = true;
    if (options_.max_bytes > 0) {
      absl::StatusOr<std::unique_ptr<Segment>> made = Segment::Create(kPage);
      if (made.ok()) probe_ = *std::move(made);
    }
  }
  return probe_.get();
}

uint64_t SharedMemory::bytes() const {
  absl::MutexLock lock(&mu_);
  return bytes_;
}

void SharedMemory::TrimLater() {
  if (trimming_) return;
  trimming_ = true;
  // Only the process's own pool is never destroyed.
  if (this == &Get()) {
    RunInBackground([this] { Trim(); }, options_.idle);
  }
}

void SharedMemory::Trim() {
  std::vector<Free> dropped;  // Unmapped unlocked.
  absl::MutexLock lock(&mu_);
  const absl::Time limit = absl::Now() - options_.idle;
  for (Free& item : free_) {
    if (item.since > limit) continue;
    bytes_ -= item.segment->capacity();
    --segments_;
    dropped.push_back(std::move(item));
  }
  std::erase_if(free_,
                [](const Free& item) { return item.segment == nullptr; });
  trimming_ = false;
  if (!free_.empty()) TrimLater();
}

}  // namespace miniray
