#include "runtime/shm/segment.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace internal {

constexpr uint64_t kMagic = 0x3147455359415252;  // "RRAYSEG1"
constexpr size_t kHeaderBytes = 4096;
constexpr size_t kReaders = 256;

// A process that reads, and how many times over: 0, or pid << 32 | count.
using Reader = std::atomic<uint64_t>;

struct SegmentHeader {
  uint64_t magic = kMagic;
  std::atomic<uint64_t> generation = 0;
  Reader readers[kReaders] = {};
};

static_assert(sizeof(SegmentHeader) <= kHeaderBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace internal

namespace {

using internal::kHeaderBytes;
using internal::kReaders;
using internal::SegmentHeader;

// The size is for ever, so that no reader can be made to touch what is gone.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string PathOf(const SegmentName& name) {
  return absl::StrCat("/proc/", name.pid, "/fd/", name.fd);
}

// Opens the segment that `name` names, and nothing else.
absl::StatusOr<ScopedFd> OpenFile(const SegmentName& name, off_t* size) {
  const std::string path = PathOf(name);
  struct stat st;
  // What is no file of memory is not even opened: that may have effects.
  if (stat(path.c_str(), &st) != 0) {
    return absl::NotFoundError(absl::StrCat("the shared memory of process ",
                                            name.pid, " is gone: ", path, ": ",
                                            strerror(errno)));
  }
  if (!S_ISREG(st.st_mode) || st.st_ino != name.inode) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not the shared memory it should be"));
  }
  ScopedFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) {
    return ErrnoStatus(errno, absl::StrCat("open shared memory ", path));
  }
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (fstat(fd.get(), &st) != 0 || st.st_ino != name.inode || seals < 0 ||
      (seals & kSeals) != kSeals ||
      st.st_size < static_cast<off_t>(2 * kHeaderBytes)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not the shared memory it should be"));
  }
  *size = st.st_size;
  return fd;
}

// This process's entry in a segment's list of readers.
class Reading {
 public:
  // Null: too many processes read the segment.
  static std::shared_ptr<Reading> Begin(std::shared_ptr<MappedSegment> segment,
                                        SegmentHeader* header) {
    const uint64_t self = static_cast<uint64_t>(getpid()) << 32;
    for (int want_own = 1; want_own >= 0; --want_own) {
      for (internal::Reader& reader : header->readers) {
        uint64_t now = reader.load();
        const bool own = (now >> 32) == (self >> 32) && now != 0;
        if (want_own != 0 ? !own : now != 0) continue;
        const uint64_t next = now == 0 ? self | 1 : now + 1;
        if (reader.compare_exchange_strong(now, next)) {
          return std::make_shared<Reading>(std::move(segment), &reader);
        }
      }
    }
    return nullptr;
  }

  Reading(std::shared_ptr<MappedSegment> segment, internal::Reader* reader)
      : segment_(std::move(segment)), reader_(reader) {}
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  ~Reading() {
    uint64_t now = reader_->load();
    uint64_t next;
    do {
      next = (now & 0xffffffff) <= 1 ? 0 : now - 1;
    } while (!reader_->compare_exchange_weak(now, next));
  }

 private:
  const std::shared_ptr<MappedSegment> segment_;
  internal::Reader* const reader_;
};

// Forgets processes that have died.
bool HasReaders(SegmentHeader* header) {
  bool found = false;
  for (internal::Reader& reader : header->readers) {
    uint64_t now = reader.load();
    if (now == 0) continue;
    if (kill(static_cast<pid_t>(now >> 32), 0) == 0 || errno != ESRCH) {
      found = true;
    } else {
      reader.compare_exchange_strong(now, 0);
    }
  }
  return found;
}

}  // namespace

std::string SegmentName::ToString() const {
  return absl::StrCat(pid, ":", fd, ":", inode);
}

absl::StatusOr<SegmentName> SegmentName::Parse(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  SegmentName name;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[0], &name.pid) ||
      !absl::SimpleAtoi(parts[1], &name.fd) ||
      !absl::SimpleAtoi(parts[2], &name.inode) || name.pid <= 0 ||
      name.fd < 0) {
    return absl::InvalidArgumentError("malformed name of shared memory");
  }
  return name;
}

absl::StatusOr<std::unique_ptr<Segment>> Segment::Create(size_t capacity) {
  constexpr size_t kPage = 4096;
  capacity = (std::max<size_t>(capacity, 1) + kPage - 1) / kPage * kPage;
  ScopedFd fd(memfd_create("miniray-shared", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create");
  const size_t size = kHeaderBytes + capacity;
  struct stat st;
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0 || fstat(fd.get(), &st) != 0) {
    return ErrnoStatus(errno, "prepare shared memory");
  }
  void* const memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "map ", size, " bytes of shared memory: ", strerror(errno)));
  }
  new (memory) SegmentHeader;
  const SegmentName name{getpid(), fd.get(), st.st_ino};
  return std::unique_ptr<Segment>(
      new Segment(std::move(fd), static_cast<char*>(memory), capacity, name));
}

Segment::Segment(ScopedFd fd, char* memory, size_t capacity, SegmentName name)
    : fd_(std::move(fd)),
      memory_(memory),
      data_(memory + kHeaderBytes),
      capacity_(capacity),
      name_(name) {}

Segment::~Segment() { munmap(memory_, kHeaderBytes + capacity_); }

uint64_t Segment::generation() const {
  return reinterpret_cast<SegmentHeader*>(memory_)->generation.load();
}

bool Segment::Claim() {
  auto* const header = reinterpret_cast<SegmentHeader*>(memory_);
  // First, so that a generation with readers stays what they say it is: they
  // may pass it on.
  if (HasReaders(header)) return false;
  header->generation.fetch_add(1);
  if (!HasReaders(header)) return true;
  // They came at that very moment, and what they read is as it was.
  header->generation.fetch_sub(1);
  return false;
}

absl::StatusOr<std::shared_ptr<MappedSegment>> MappedSegment::Open(
    const SegmentName& name) {
  off_t size;
  MR_ASSIGN_OR_RETURN(ScopedFd fd, OpenFile(name, &size));
  // The header is written by its readers, the rest by nobody but the owner.
  void* const memory = mmap(nullptr, static_cast<size_t>(size),
                            PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "map ", size, " bytes of shared memory: ", strerror(errno)));
  }
  std::shared_ptr<MappedSegment> segment(new MappedSegment(
      name.inode, std::move(fd), memory, static_cast<size_t>(size)));
  if (mprotect(static_cast<char*>(memory) + kHeaderBytes, segment->capacity(),
               PROT_READ) != 0) {
    return ErrnoStatus(errno, "protect shared memory");
  }
  if (static_cast<SegmentHeader*>(memory)->magic != internal::kMagic) {
    return absl::FailedPreconditionError("not a segment of shared memory");
  }
  return segment;
}

MappedSegment::MappedSegment(uint64_t inode, ScopedFd fd, void* memory,
                             size_t size)
    : inode_(inode),
      fd_(std::move(fd)),
      memory_(memory),
      data_(static_cast<const char*>(memory) + kHeaderBytes),
      capacity_(size - kHeaderBytes) {}

MappedSegment::~MappedSegment() { munmap(memory_, kHeaderBytes + capacity_); }

SegmentName MappedSegment::own_name() const {
  return {getpid(), fd_.get(), inode_};
}

absl::StatusOr<std::shared_ptr<void>> MappedSegment::BeginReading(
    std::shared_ptr<MappedSegment> segment, uint64_t generation) {
  auto* const header = static_cast<SegmentHeader*>(segment->memory_);
  const std::shared_ptr<Reading> reading = Reading::Begin(segment, header);
  if (reading == nullptr) {
    return absl::ResourceExhaustedError(
        "too many processes read one piece of shared memory");
  }
  if (header->generation.load() != generation) {
    return absl::FailedPreconditionError(
        "the shared memory serves another use by now");
  }
  // While somebody reads, there is no other one.
  segment->generation_.store(generation);
  return reading;
}

absl::StatusOr<std::shared_ptr<char>> MappedSegment::MapPrivate(
    size_t offset, size_t size) const {
  const size_t skipped = offset % kHeaderBytes;
  void* const memory =
      mmap(nullptr, skipped + size, PROT_READ | PROT_WRITE, MAP_PRIVATE,
           fd_.get(), static_cast<off_t>(kHeaderBytes + offset - skipped));
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "map ", size, " bytes of shared memory: ", strerror(errno)));
  }
  // One call instead of a page fault for each 64 KB. Kernels before 5.14 do
  // not know it.
  madvise(memory, skipped + size, MADV_POPULATE_READ);
  return std::shared_ptr<char>(
      static_cast<char*>(memory) + skipped,
      [memory, length = skipped + size](char*) { munmap(memory, length); });
}

}  // namespace miniray
