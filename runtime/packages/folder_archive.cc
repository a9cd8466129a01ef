#include "runtime/packages/folder_archive.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "proto/archive.pb.h"
#include "runtime/base/files.h"
#include "runtime/base/framed_socket.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"

namespace miniray {
namespace {

constexpr int32_t kVersion = 1;
constexpr int64_t kDataBytes = 1 << 20;
constexpr size_t kMaxPathBytes = 4096;
// Of one record: data, and the little around it.
constexpr size_t kMaxRecordBytes = 2 << 20;
constexpr size_t kNamedFiles = 5;

std::string Megabytes(int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

struct Found {
  std::string path;  // Relative to the folder.
  v1::ArchiveEntry::Kind kind;
  uint32_t mode = 0;
  int64_t size = 0;
};

absl::Status TooLarge(std::vector<Found> found, int64_t bytes,
                      const ArchiveLimits& limits) {
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.size > b.size; });
  found.resize(std::min(found.size(), kNamedFiles));
  return absl::ResourceExhaustedError(absl::StrCat(
      "the folder's files have ", Megabytes(bytes), ", and the limit is ",
      Megabytes(limits.max_bytes), "; the largest: ",
      absl::StrJoin(found, ", ", [](std::string* out, const Found& file) {
        absl::StrAppend(out, ToUtf8(file.path), " (", Megabytes(file.size),
                        ")");
      })));
}

absl::StatusOr<std::vector<Found>> ListFolder(const std::string& folder,
                                              const ArchiveLimits& limits) {
  std::vector<Found> found;
  int64_t bytes = 0;
  std::vector<std::string> folders = {""};
  while (!folders.empty()) {
    const std::string at = std::move(folders.back());
    folders.pop_back();
    const std::string from =
        at.empty() ? folder : absl::StrCat(folder, "/", at);
    std::error_code error;
    std::filesystem::directory_iterator entry(from, error), end;
    if (error) {
      return ErrnoStatus(error.value(), absl::StrCat("read folder ", from));
    }
    for (; entry != end; entry.increment(error)) {
      if (error) {
        return ErrnoStatus(error.value(), absl::StrCat("read folder ", from));
      }
      const std::string name = entry->path().filename().string();
      if (name == ".git") continue;
      Found item = {at.empty() ? name : absl::StrCat(at, "/", name)};
      struct stat st;
      if (lstat(entry->path().c_str(), &st) != 0) {
        return ErrnoStatus(errno,
                           absl::StrCat("stat ", entry->path().string()));
      }
      item.mode = st.st_mode & 0777;
      if (S_ISDIR(st.st_mode)) {
        item.kind = v1::ArchiveEntry::KIND_FOLDER;
        folders.push_back(item.path);
      } else if (S_ISREG(st.st_mode)) {
        item.kind = v1::ArchiveEntry::KIND_FILE;
        item.size = st.st_size;
        bytes += st.st_size;
      } else if (S_ISLNK(st.st_mode)) {
        item.kind = v1::ArchiveEntry::KIND_SYMLINK;
      } else {
        continue;
      }
      if (item.path.size() > kMaxPathBytes) {
        return absl::InvalidArgumentError(
            absl::StrCat("a path is too long: ", ToUtf8(item.path)));
      }
      found.push_back(std::move(item));
      if (static_cast<int64_t>(found.size()) > limits.max_entries) {
        return absl::ResourceExhaustedError(
            absl::StrCat("the folder ", folder, " holds more than ",
                         limits.max_entries, " files and folders"));
      }
    }
  }
  if (bytes > limits.max_bytes) {
    return TooLarge(std::move(found), bytes, limits);
  }
  // A folder sorts before what it holds.
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.path < b.path; });
  return found;
}

absl::Status Append(int fd, const v1::ArchiveRecord& record) {
  const std::string bytes = record.SerializeAsString();
  const auto size = static_cast<uint32_t>(bytes.size());
  std::string frame;
  for (int shift = 0; shift < 32; shift += 8) {
    frame.push_back(static_cast<char>(size >> shift & 0xff));
  }
  frame += bytes;
  absl::string_view left = frame;
  while (!left.empty()) {
    const ssize_t n = write(fd, left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write the archive");
    left.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status AppendFile(int archive, const std::string& path, int64_t size) {
  const ScopedFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  v1::ArchiveRecord record;
  while (size > 0) {
    std::string* data = record.mutable_data();
    data->resize(static_cast<size_t>(std::min(size, kDataBytes)));
    const ssize_t n = read(fd.get(), data->data(), data->size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
    if (n == 0) {
      return absl::AbortedError(
          absl::StrCat(ToUtf8(path), " was cut short while it was packed"));
    }
    data->resize(static_cast<size_t>(n));
    size -= n;
    MR_RETURN_IF_ERROR(Append(archive, record));
  }
  return absl::OkStatus();
}

// Reads an archive's records one by one.
class Reader {
 public:
  explicit Reader(int fd) : fd_(fd) {}

  absl::StatusOr<v1::ArchiveRecord> Next() {
    while (true) {
      absl::StatusOr<std::optional<std::string>> bytes = parser_.Next();
      if (bytes.ok() && bytes->has_value()) {
        v1::ArchiveRecord record;
        if (record.ParseFromString(**bytes)) return record;
      } else if (bytes.ok()) {
        const ssize_t n = read(fd_, buffer_.data(), buffer_.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ErrnoStatus(errno, "read the archive of the folder");
        parser_.Feed(absl::string_view(buffer_.data(), static_cast<size_t>(n)));
        if (n > 0) continue;
      }
      return absl::DataLossError("the archive of the folder is damaged");
    }
  }

 private:
  const int fd_;
  FrameParser parser_{kMaxRecordBytes};
  std::vector<char> buffer_ = std::vector<char>(1 << 18);
};

bool IsSafePath(absl::string_view path) {
  if (path.empty() || path.size() > kMaxPathBytes ||
      path.find('\0') != absl::string_view::npos) {
    return false;
  }
  for (absl::string_view name : absl::StrSplit(path, '/')) {
    if (name.empty() || name == "." || name == "..") return false;
  }
  return true;
}

class Unpacker {
 public:
  Unpacker(int archive, std::string folder, const ArchiveLimits& limits)
      : reader_(archive), folder_(std::move(folder)), limits_(limits) {}

  absl::StatusOr<ArchiveSummary> Run() {
    MR_ASSIGN_OR_RETURN(v1::ArchiveRecord record, reader_.Next());
    if (!record.has_header() || record.header().version() != kVersion) {
      return absl::DataLossError("not the archive of a folder");
    }
    while (true) {
      MR_ASSIGN_OR_RETURN(record, reader_.Next());
      if (record.has_end()) break;
      if (!record.has_entry()) {
        return absl::DataLossError("the archive has data without a file");
      }
      MR_RETURN_IF_ERROR(Make(record.entry()));
    }
    if (record.end().entries() != summary_.entries) {
      return absl::DataLossError("the archive lacks entries");
    }
    // Only now: a folder may be read-only.
    for (auto mode = modes_.rbegin(); mode != modes_.rend(); ++mode) {
      if (chmod(mode->first.c_str(), mode->second) != 0) {
        return ErrnoStatus(errno, absl::StrCat("chmod ", mode->first));
      }
    }
    return summary_;
  }

 private:
  absl::Status Make(const v1::ArchiveEntry& entry) {
    if (!IsSafePath(entry.path())) {
      return absl::DataLossError(absl::StrCat(
          "the archive has an unsafe path: '", ToUtf8(entry.path()), "'"));
    }
    // What is not a folder that we made ourselves, a link above all, cannot
    // hold anything.
    const size_t slash = entry.path().rfind('/');
    if (slash != std::string::npos &&
        folders_.count(entry.path().substr(0, slash)) == 0) {
      return absl::DataLossError(
          absl::StrCat("the archive has '", ToUtf8(entry.path()),
                       "' before, or without, the folder that holds it"));
    }
    if (++summary_.entries > limits_.max_entries) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the folder has more than ", limits_.max_entries,
                       " files and folders"));
    }
    const std::string path = absl::StrCat(folder_, "/", entry.path());
    const auto mode = static_cast<mode_t>(entry.mode() & 0777);
    switch (entry.kind()) {
      case v1::ArchiveEntry::KIND_FOLDER:
        if (mkdir(path.c_str(), 0700) != 0) {
          return ErrnoStatus(errno, absl::StrCat("create folder ", path));
        }
        folders_.insert(entry.path());
        modes_.emplace_back(path, mode | 0700);
        return absl::OkStatus();
      case v1::ArchiveEntry::KIND_SYMLINK:
        if (symlink(entry.target().c_str(), path.c_str()) != 0) {
          return ErrnoStatus(errno, absl::StrCat("create link ", path));
        }
        return absl::OkStatus();
      case v1::ArchiveEntry::KIND_FILE:
        return MakeFile(path, mode, entry.size());
      default:
        return absl::DataLossError("the archive has an entry of unknown kind");
    }
  }

  absl::Status MakeFile(const std::string& path, mode_t mode, int64_t size) {
    if (size < 0 || size > limits_.max_bytes - summary_.bytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the folder's files have more than ", Megabytes(limits_.max_bytes)));
    }
    summary_.bytes += size;
    const ScopedFd fd(open(path.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                           0600));
    if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("create ", path));
    while (size > 0) {
      MR_ASSIGN_OR_RETURN(const v1::ArchiveRecord record, reader_.Next());
      absl::string_view data = record.data();
      if (data.empty() || static_cast<int64_t>(data.size()) > size) {
        return absl::DataLossError("the archive lacks bytes of a file");
      }
      size -= static_cast<int64_t>(data.size());
      while (!data.empty()) {
        const ssize_t n = write(fd.get(), data.data(), data.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return ErrnoStatus(errno, absl::StrCat("write ", path));
        data.remove_prefix(static_cast<size_t>(n));
      }
    }
    if (fchmod(fd.get(), mode | 0400) != 0) {
      return ErrnoStatus(errno, absl::StrCat("chmod ", path));
    }
    return absl::OkStatus();
  }

  Reader reader_;
  const std::string folder_;
  const ArchiveLimits limits_;
  ArchiveSummary summary_;
  std::set<std::string> folders_;
  std::vector<std::pair<std::string, mode_t>> modes_;
};

}  // namespace

absl::StatusOr<ArchiveSummary> PackFolder(const std::string& folder,
                                          int archive,
                                          const ArchiveLimits& limits) {
  MR_ASSIGN_OR_RETURN(const std::vector<Found> found,
                      ListFolder(folder, limits));
  ArchiveSummary summary;
  v1::ArchiveRecord record;
  record.mutable_header()->set_version(kVersion);
  MR_RETURN_IF_ERROR(Append(archive, record));
  for (const Found& item : found) {
    const std::string path = absl::StrCat(folder, "/", item.path);
    v1::ArchiveEntry* entry = record.mutable_entry();
    entry->Clear();
    entry->set_path(item.path);
    entry->set_kind(item.kind);
    entry->set_size(item.size);
    if (item.kind == v1::ArchiveEntry::KIND_SYMLINK) {
      std::error_code error;
      entry->set_target(std::filesystem::read_symlink(path, error).string());
      if (error) return ErrnoStatus(error.value(), absl::StrCat("read ", path));
    } else {
      entry->set_mode(item.mode);
    }
    MR_RETURN_IF_ERROR(Append(archive, record));
    if (item.kind == v1::ArchiveEntry::KIND_FILE) {
      MR_RETURN_IF_ERROR(AppendFile(archive, path, item.size));
    }
    summary.bytes += item.size;
    ++summary.entries;
  }
  record.mutable_end()->set_entries(summary.entries);
  MR_RETURN_IF_ERROR(Append(archive, record));
  return summary;
}

absl::StatusOr<ArchiveSummary> PackFolder(const std::string& folder,
                                          const std::string& archive,
                                          const ArchiveLimits& limits) {
  ScopedFd fd(
      open(archive.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("create ", archive));
  absl::StatusOr<ArchiveSummary> summary = PackFolder(folder, fd.get(), limits);
  if (close(fd.release()) != 0 && summary.ok()) {
    summary = ErrnoStatus(errno, absl::StrCat("write ", archive));
  }
  if (!summary.ok()) unlink(archive.c_str());
  return summary;
}

absl::StatusOr<ArchiveSummary> UnpackFolder(const std::string& archive,
                                            const std::string& folder,
                                            const ArchiveLimits& limits) {
  const ScopedFd fd(open(archive.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", archive));
  if (mkdir(folder.c_str(), 0700) != 0) {
    return ErrnoStatus(errno, absl::StrCat("create folder ", folder));
  }
  absl::StatusOr<ArchiveSummary> summary =
      Unpacker(fd.get(), folder, limits).Run();
  if (!summary.ok()) {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  return summary;
}

}  // namespace miniray
