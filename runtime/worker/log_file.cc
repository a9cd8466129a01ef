#include "runtime/worker/log_file.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

// Beyond any sensible --log_files.
constexpr int kMaxFiles = 10000;

std::string RotatedPath(const std::string& path, int index) {
  return index == 0 ? path : absl::StrCat(path, ".", index);
}

// Bytes of each log's files that made way for newer ones. Rotations and whoever
// looks for a file exclude each other by its mutex: amid a rotation a log's
// newest file is not there.
struct Dropped {
  absl::Mutex mu;
  std::map<std::string, int64_t> bytes ABSL_GUARDED_BY(mu);
};

Dropped& GetDropped() {
  static auto* const dropped = new Dropped;
  return *dropped;
}

// Of each log of which the disk did not take all.
struct LostOutputs {
  absl::Mutex mu;
  std::map<std::string, LostOutput> logs ABSL_GUARDED_BY(mu);
};

LostOutputs& GetLostOutputs() {
  static auto* const lost = new LostOutputs;
  return *lost;
}

std::string Canonical(const std::string& path) {
  std::error_code error;
  std::string real = std::filesystem::canonical(path, error).string();
  return error ? path : real;
}

// -1: there is no such file.
int64_t SizeOf(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 ? st.st_size : -1;
}

// -1: there is no such file.
int64_t Inode(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 ? static_cast<int64_t>(st.st_ino) : -1;
}

// Where a log's file that is open stands among the others.
struct Place {
  int index = -1;    // As of RotatedPath; -1: it is gone, or none is open.
  int oldest = -1;   // Of all that are there; -1: there are none.
  int64_t size = 0;  // Of the one that is open.
};

// Holds as long as the lock of Dropped: rotations move files. Errors: those of
// the system.
absl::StatusOr<Place> FindPlace(const std::string& path, const ScopedFd& fd) {
  Place place;
  struct stat own = {};
  if (fd.valid()) {
    if (fstat(fd.get(), &own) != 0) {
      return ErrnoStatus(errno, absl::StrCat("stat ", path));
    }
    place.size = own.st_size;
  }
  for (int i = 0; i < kMaxFiles; ++i) {
    const int64_t inode = Inode(RotatedPath(path, i));
    if (inode < 0 && i > 0) break;
    if (inode >= 0) place.oldest = i;
    if (fd.valid() && inode == static_cast<int64_t>(own.st_ino)) {
      place.index = i;
    }
  }
  return place;
}

// How many bytes of a log stand before its file at `index`: all that is gone,
// and the files from the oldest to that one.
int64_t BytesBefore(const Dropped& dropped, const std::string& path, int index,
                    int oldest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(dropped.mu) {
  const auto it = dropped.bytes.find(path);
  int64_t bytes = it == dropped.bytes.end() ? 0 : it->second;
  for (int i = oldest; i > index; --i) {
    bytes += std::max<int64_t>(SizeOf(RotatedPath(path, i)), 0);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<LogFile> LogFile::Open(std::string path, Options options) {
  LogFile file(std::move(path), options);
  file.fd_ = ScopedFd(open(file.path_.c_str(),
                           O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!file.fd_.valid()) {
    return ErrnoStatus(errno, absl::StrCat("open ", file.path_));
  }
  struct stat st;
  if (fstat(file.fd_.get(), &st) == 0) file.size_ = st.st_size;
  return file;
}

void LogFile::Append(absl::string_view text) {
  while (!text.empty()) {
    const int64_t room = options_.max_bytes - size_;
    if (static_cast<int64_t>(text.size()) <= room) return Write(text);
    // Up to the end of a line, if one fits; a line that fits in no file is cut.
    size_t part = 0;
    if (room > 0) {
      const size_t newline = text.rfind('\n', static_cast<size_t>(room) - 1);
      if (newline != absl::string_view::npos) part = newline + 1;
    }
    if (part == 0 && size_ == 0) {
      part = static_cast<size_t>(std::max<int64_t>(options_.max_bytes, 1));
    }
    Write(text.substr(0, part));
    text.remove_prefix(std::min(part, text.size()));
    if (!text.empty()) Rotate();
  }
}

void LogFile::Rotate() {
  Dropped& dropped = GetDropped();
  absl::MutexLock lock(&dropped.mu);
  const int64_t oldest =
      SizeOf(RotatedPath(path_, std::max(options_.max_files - 1, 0)));
  if (oldest > 0) dropped.bytes[Canonical(path_)] += oldest;
  // A failure leaves a file that is larger than it should be, or one lost.
  for (int i = options_.max_files - 1; i > 0; --i) {
    (void)rename(RotatedPath(path_, i - 1).c_str(),
                 RotatedPath(path_, i).c_str());
  }
  // Not truncated: who reads it would not know.
  if (options_.max_files <= 1) unlink(path_.c_str());
  ScopedFd fresh(
      open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (fresh.valid()) fd_ = std::move(fresh);
  size_ = 0;
}

void LogFile::NoteLost() {
  if (lost_ == 0) return;
  const std::string note =
      absl::StrCat("[miniray: ", lost_,
                   " bytes of output were lost here: ", lost_cause_, "]\n");
  const ssize_t n = write(fd_.get(), note.data(), note.size());
  if (n > 0) size_ += n;
  if (n != static_cast<ssize_t>(note.size())) return;
  lost_ = 0;
  LostOutputs& lost = GetLostOutputs();
  absl::MutexLock lock(&lost.mu);
  lost.logs[Canonical(path_)].unsaid_bytes = 0;
}

void LogFile::Finish() { NoteLost(); }

void LogFile::Write(absl::string_view text) {
  if (!text.empty()) NoteLost();
  while (!text.empty()) {
    const ssize_t n = write(fd_.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      if (total_lost_ == 0) {
        PLOG(ERROR) << path_ << ": output is lost";
      }
      lost_cause_ = strerror(errno);
      lost_ += static_cast<int64_t>(text.size());
      total_lost_ += static_cast<int64_t>(text.size());
      LostOutputs& lost = GetLostOutputs();
      const std::string path = Canonical(path_);
      absl::MutexLock lock(&lost.mu);
      lost.logs[path] = {
          total_lost_, lost_,
          absl::StrCat(lost_cause_, " in ",
                       std::filesystem::path(path).parent_path().string())};
      return;
    }
    size_ += n;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

std::string LostOutput::ToString() const {
  if (bytes == 0) return "";
  return absl::StrCat("output lost: ", cause, ", ", bytes, " bytes");
}

LostOutput LostOutputOf(const std::string& path) {
  LostOutputs& lost = GetLostOutputs();
  {
    absl::MutexLock lock(&lost.mu);
    if (lost.logs.empty()) return {};
  }
  const std::string real = Canonical(path);
  absl::MutexLock lock(&lost.mu);
  const auto it = lost.logs.find(real);
  return it == lost.logs.end() ? LostOutput() : it->second;
}

absl::StatusOr<LogReader> LogReader::Open(const std::string& path,
                                          int64_t tail_lines) {
  std::error_code error;
  std::string real;
  {
    absl::MutexLock lock(&GetDropped().mu);
    real = std::filesystem::canonical(path, error).string();
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("open ", path));
  LogReader reader(real);
  if (tail_lines > 0) {
    MR_RETURN_IF_ERROR(reader.StartAtTail(tail_lines));
  } else {
    MR_RETURN_IF_ERROR(reader.OpenNext().status());
  }
  return reader;
}

absl::Status LogReader::StartAtTail(int64_t lines) {
  constexpr off_t kBlock = 64 << 10;
  // The newline at the very end closes the last line, and begins none.
  bool at_end = true;
  while (true) {
    MR_ASSIGN_OR_RETURN(ScopedFd fd, OpenOlder());
    // Fewer lines than were asked for: from the oldest file's start.
    if (!fd.valid()) break;
    struct stat st;
    if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, "stat");
    off_t end = st.st_size;
    std::string block;
    while (end > 0) {
      const off_t begin = std::max<off_t>(0, end - kBlock);
      block.resize(static_cast<size_t>(end - begin));
      const ssize_t n = pread(fd.get(), block.data(), block.size(), begin);
      if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", path_));
      for (ssize_t i = n; i-- > 0;) {
        const bool newline = block[static_cast<size_t>(i)] == '\n';
        if (newline && !std::exchange(at_end, false) && --lines <= 0) {
          if (lseek(fd.get(), begin + i + 1, SEEK_SET) < 0) {
            return ErrnoStatus(errno, "seek");
          }
          fd_ = std::move(fd);
          FindBegin();
          return absl::OkStatus();
        }
        at_end = false;
      }
      end = begin;
    }
    if (lseek(fd.get(), 0, SEEK_SET) < 0) return ErrnoStatus(errno, "seek");
    fd_ = std::move(fd);
  }
  FindBegin();
  return absl::OkStatus();
}

absl::StatusOr<ScopedFd> LogReader::OpenOlder() const {
  absl::MutexLock lock(&GetDropped().mu);
  MR_ASSIGN_OR_RETURN(const Place place, FindPlace(path_, fd_));
  // It is gone: there is none older.
  if (fd_.valid() && place.index < 0) return ScopedFd();
  const int index = place.index + 1;
  ScopedFd fd(open(RotatedPath(path_, index).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() && (index == 0 || errno != ENOENT)) {
    return ErrnoStatus(errno, absl::StrCat("open ", path_));
  }
  return fd;
}

void LogReader::FindBegin() {
  Dropped& dropped = GetDropped();
  absl::MutexLock lock(&dropped.mu);
  const absl::StatusOr<Place> place = FindPlace(path_, fd_);
  if (!place.ok()) return;
  // One that is gone already was older than all.
  begin_ = BytesBefore(dropped, path_,
                       place->index < 0 ? place->oldest : place->index,
                       place->oldest);
}

absl::StatusOr<bool> LogReader::OpenNext() {
  Dropped& dropped = GetDropped();
  absl::MutexLock lock(&dropped.mu);
  MR_ASSIGN_OR_RETURN(const Place place, FindPlace(path_, fd_));
  if (place.index == 0) return false;
  if (place.oldest < 0) return false;  // All are gone.
  // One that is gone already was older than all.
  const int next = place.index > 0 ? place.index - 1 : place.oldest;
  ScopedFd fd(open(RotatedPath(path_, next).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) return false;  // About to be made.
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path_));
  const int64_t begin = BytesBefore(dropped, path_, next, place.oldest);
  const int64_t expected = fd_.valid() ? begin_ + place.size : 0;
  lost_ += std::max<int64_t>(begin - expected, 0);
  begin_ = begin;
  fd_ = std::move(fd);
  return true;
}

int64_t LogReader::Position() const {
  const off_t position = lseek(fd_.get(), 0, SEEK_CUR);
  return begin_ + std::max<off_t>(position, 0);
}

absl::StatusOr<std::string> LogReader::Read(size_t max_bytes) {
  std::string bytes;
  while (true) {
    bytes.resize(max_bytes);
    ssize_t n;
    do {
      n = read(fd_.get(), bytes.data(), max_bytes);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", path_));
    bytes.resize(static_cast<size_t>(n));
    if (n > 0) return bytes;
    // A file that was rotated away is complete; but what was written before
    // that, and after our read, is still to be read.
    if (Inode(path_) >= 0) {
      struct stat own;
      if (fstat(fd_.get(), &own) != 0) return ErrnoStatus(errno, "stat");
      if (Inode(path_) == static_cast<int64_t>(own.st_ino)) return bytes;
      const off_t position = lseek(fd_.get(), 0, SEEK_CUR);
      if (position < own.st_size) continue;
    }
    MR_ASSIGN_OR_RETURN(const bool opened, OpenNext());
    if (!opened) return bytes;
  }
}

std::map<int, std::string> FindActorLogs(const std::string& folder,
                                         absl::string_view actor_id) {
  std::map<int, std::string> found;
  std::error_code error;
  absl::MutexLock lock(&GetDropped().mu);
  const std::string infix = absl::StrCat("-", actor_id, ".");
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const size_t at = name.rfind(infix);
    if (at == std::string::npos || !absl::EndsWith(name, ".log")) continue;
    absl::string_view number =
        absl::string_view(name).substr(at + infix.size());
    number.remove_suffix(absl::string_view(".log").size());
    int incarnation = 0;
    if (absl::SimpleAtoi(number, &incarnation)) {
      found[incarnation] = entry.path().string();
    }
  }
  return found;
}

}  // namespace miniray
