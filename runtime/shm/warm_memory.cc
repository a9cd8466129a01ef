#include "runtime/shm/warm_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <utility>

#include "runtime/base/background.h"
#include "runtime/shm/shared_bytes.h"
#include "runtime/shm/shared_memory.h"

namespace miniray {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Less than that malloc keeps warm by itself, or is no great loss.
constexpr size_t kMinPrivateBytes = size_t{1} << 20;

// A block may be twice as large as what it serves for.
bool Serves(size_t capacity, size_t size) {
  return capacity >= size && capacity / 2 <= size + kHugePage;
}

// Fresh memory that begins at a huge page; null if there is none.
char* Map(size_t capacity) {
  void* const memory =
      mmap(nullptr, capacity + kHugePage, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<char*>(memory);
  const size_t head =
      (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (head > 0) munmap(begin, head);
  char* const data = begin + head;
  if (head < kHugePage) munmap(data + capacity, kHugePage - head);
  madvise(data, capacity, MADV_HUGEPAGE);  // Where there are any.
  return data;
}

}  // namespace

PrivateMemory& PrivateMemory::Get() {
  // Never destroyed: blocks may outlive main.
  static PrivateMemory* const pool = new PrivateMemory(Options{});
  return *pool;
}

PrivateMemory::~PrivateMemory() {
  for (const Block& block : idle_) munmap(block.data, block.capacity);
}

std::shared_ptr<char> PrivateMemory::Allocate(size_t size) {
  if (size == 0 || size > SIZE_MAX - 2 * kHugePage) return nullptr;
  Block block;
  {
    absl::MutexLock lock(&mu_);
    for (auto it = idle_.rbegin(); it != idle_.rend(); ++it) {
      if (!Serves(it->capacity, size)) continue;
      block = *it;
      idle_bytes_ -= block.capacity;
      idle_.erase(std::next(it).base());
      break;
    }
  }
  if (block.data == nullptr) {
    block.capacity = (size + kHugePage - 1) / kHugePage * kHugePage;
    block.data = Map(block.capacity);
    if (block.data == nullptr) return nullptr;
  }
  return {block.data, [this, block](char*) { Return(block); }};
}

void PrivateMemory::Return(Block block) {
  block.since = absl::Now();
  std::vector<Block> dropped;  // Unmapped unlocked: that takes long.
  {
    absl::MutexLock lock(&mu_);
    idle_bytes_ += block.capacity;
    idle_.push_back(block);
    while (idle_bytes_ > options_.max_idle_bytes) {
      idle_bytes_ -= idle_.front().capacity;
      dropped.push_back(idle_.front());
      idle_.erase(idle_.begin());
    }
    if (!trimming_ && this == &Get()) {
      trimming_ = true;
      RunInBackground([this] { Trim(); }, options_.idle);
    }
  }
  for (const Block& item : dropped) munmap(item.data, item.capacity);
}

uint64_t PrivateMemory::idle_bytes() const {
  absl::MutexLock lock(&mu_);
  return idle_bytes_;
}

void PrivateMemory::Trim() {
  std::vector<Block> dropped;
  {
    absl::MutexLock lock(&mu_);
    const absl::Time limit = absl::Now() - options_.idle;
    // They stand in the order in which they became idle.
    while (!idle_.empty() && idle_.front().since <= limit) {
      idle_bytes_ -= idle_.front().capacity;
      dropped.push_back(idle_.front());
      idle_.erase(idle_.begin());
    }
    trimming_ = !idle_.empty() && this == &Get();
    if (trimming_) RunInBackground([this] { Trim(); }, options_.idle);
  }
  for (const Block& item : dropped) munmap(item.data, item.capacity);
}

std::shared_ptr<char> AllocateWarm(size_t size) {
  if (size < kMinSharedBytes) return nullptr;
  if (std::shared_ptr<SharedBlock> block = SharedMemory::Get().Allocate(size)) {
    char* const data = block->data();
    return {std::move(block), data};
  }
  if (size < kMinPrivateBytes) return nullptr;
  return PrivateMemory::Get().Allocate(size);
}

}  // namespace miniray
