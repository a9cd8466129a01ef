#include "runtime/shm/borrowed_memory.h"

#include <sys/stat.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/background.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

// After which what is mapped and not used is let go of; internal.
constexpr absl::Duration kIdle = absl::Seconds(10);

// Each takes a file descriptor and address space.
constexpr size_t kMaxMappings = 512;

// Whether `pid` is in this process's namespace of processes. The readers of a
// segment are counted by their numbers there: to an owner elsewhere, whose
// memory can be opened all the same where both see one /proc, ours would be
// another process's or nobody's.
bool InOwnNamespace(pid_t pid) {
  struct stat own, other;
  // A kernel without them.
  if (stat("/proc/self/ns/pid", &own) != 0) return true;
  const std::string path = absl::StrCat("/proc/", pid, "/ns/pid");
  return stat(path.c_str(), &other) == 0 && own.st_dev == other.st_dev &&
         own.st_ino == other.st_ino;
}

}  // namespace

BorrowedMemory& BorrowedMemory::Get() {
  // Never destroyed: leases may outlive main.
  static auto* const memory = new BorrowedMemory;
  return *memory;
}

bool BorrowedMemory::CanRead(const SegmentName& name) {
  return InOwnNamespace(name.pid) && MappedSegment::Open(name).ok();
}

absl::StatusOr<BorrowedMemory::Lease> BorrowedMemory::Borrow(
    const SegmentName& name, uint64_t generation, uint64_t size) {
  const Key key(name.pid, name.fd, name.inode);
  Lease lease;
  {
    absl::MutexLock lock(&mu_);
    const auto it = entries_.find(key);
    if (it != entries_.end()) {
      it->second.last_use = absl::Now();
      lease.segment = it->second.segment;
    }
  }
  if (lease.segment == nullptr) {
    MR_ASSIGN_OR_RETURN(lease.segment, MappedSegment::Open(name));
    std::shared_ptr<MappedSegment> dropped;  // Dies unlocked.
    absl::MutexLock lock(&mu_);
    if (entries_.size() >= kMaxMappings) {
      auto oldest = entries_.begin();
      for (auto it = entries_.begin(); it != entries_.end(); ++it) {
        if (it->second.last_use < oldest->second.last_use) oldest = it;
      }
      dropped = std::move(oldest->second.segment);
      entries_.erase(oldest);
    }
    Entry& entry = entries_[key];
    // Another thread may have been faster.
    if (entry.segment != nullptr) dropped = std::move(entry.segment);
    entry = {lease.segment, absl::Now()};
    std::erase_if(mapped_,
                  [](const auto& item) { return item.second.expired(); });
    mapped_[lease.segment->data() + lease.segment->capacity()] = lease.segment;
    TrimLater();
  }
  if (size > lease.segment->capacity()) {
    return absl::OutOfRangeError(
        absl::StrCat("a segment of ", lease.segment->capacity(),
                     " bytes does not hold ", size, " bytes of a message"));
  }
  MR_ASSIGN_OR_RETURN(lease.reading,
                      MappedSegment::BeginReading(lease.segment, generation));
  return lease;
}

std::shared_ptr<MappedSegment> BorrowedMemory::Find(const void* address) const {
  const auto* const wanted = static_cast<const char*>(address);
  std::shared_ptr<MappedSegment> segment;  // May be the last holder.
  absl::MutexLock lock(&mu_);
  const auto it = mapped_.upper_bound(wanted);
  if (it == mapped_.end()) return nullptr;
  segment = it->second.lock();
  if (segment == nullptr || wanted < segment->data()) return nullptr;
  return segment;
}

std::shared_ptr<char> BorrowedMemory::MapPrivate(
    absl::string_view bytes) const {
  const std::shared_ptr<MappedSegment> segment = Find(bytes.data());
  if (segment == nullptr) return nullptr;
  absl::StatusOr<std::shared_ptr<char>> memory = segment->MapPrivate(
      static_cast<size_t>(bytes.data() - segment->data()), bytes.size());
  return memory.ok() ? *std::move(memory) : nullptr;
}

void BorrowedMemory::TrimLater() {
  if (trimming_ || entries_.empty()) return;
  trimming_ = true;
  RunInBackground([] { Get().Trim(kIdle); }, kIdle);
}

void BorrowedMemory::Trim(absl::Duration idle) {
  std::vector<std::shared_ptr<MappedSegment>> dropped;  // Die unlocked.
  absl::MutexLock lock(&mu_);
  const absl::Time limit = absl::Now() - idle;
  for (auto& [key, entry] : entries_) {
    if (entry.last_use <= limit) dropped.push_back(std::move(entry.segment));
  }
  std::erase_if(entries_, [](const auto& item) {
    return item.second.segment == nullptr;
  });
  trimming_ = false;
  TrimLater();
}

size_t BorrowedMemory::mappings() const {
  absl::MutexLock lock(&mu_);
  return entries_.size();
}

}  // namespace miniray
