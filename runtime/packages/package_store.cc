#include "runtime/packages/package_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

// Behind the id, in the name of a file that is being written; then an id.
constexpr char kUnfinished[] = ".tmp-";

// See HadLately.
constexpr absl::Duration kLately = absl::Seconds(1);

}  // namespace

PackageStore::Writer::Writer(std::string package_id, std::string temporary,
                             std::string path, int fd)
    : package_id_(std::move(package_id)),
      temporary_(std::move(temporary)),
      path_(std::move(path)),
      fd_(fd) {}

PackageStore::Writer::~Writer() {
  if (fd_ >= 0) {
    close(fd_);
    unlink(temporary_.c_str());
  }
}

absl::Status PackageStore::Writer::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = write(fd_, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, absl::StrCat("write package ", temporary_));
    }
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status PackageStore::Writer::Commit() {
  MR_ASSIGN_OR_RETURN(const std::string hash, Sha256OfFile(temporary_));
  if (hash != package_id_) {
    return absl::DataLossError(absl::StrCat("package ", package_id_,
                                            " arrived damaged: its bytes have "
                                            "the SHA-256 ",
                                            hash));
  }
  if (fchmod(fd_, 0700) != 0) {
    return ErrnoStatus(errno, absl::StrCat("chmod ", temporary_));
  }
  // A file that is open for writing cannot be executed.
  if (close(std::exchange(fd_, -1)) != 0 ||
      rename(temporary_.c_str(), path_.c_str()) != 0) {
    absl::Status status = ErrnoStatus(errno, absl::StrCat("store ", path_));
    unlink(temporary_.c_str());
    return status;
  }
  return absl::OkStatus();
}

bool PackageStore::IsValidId(absl::string_view package_id) {
  return package_id.size() == 64 &&
         std::all_of(package_id.begin(), package_id.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string PackageStore::PathOf(absl::string_view package_id) const {
  return absl::StrCat(folder_, "/", package_id);
}

bool PackageStore::Has(absl::string_view package_id) const {
  if (!IsValidId(package_id)) return false;
  const std::string path = PathOf(package_id);
  struct stat st;
  return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

bool PackageStore::HadLately(absl::string_view package_id) const {
  const absl::Time now = absl::Now();
  int64_t removals;
  {
    absl::MutexLock lock(&mu_);
    // A clock that was set back makes it older, not younger.
    const absl::Duration age = absl::AbsDuration(now - seen_at_);
    if (seen_id_ == package_id && age < kLately) return true;
    removals = removals_;
  }
  if (!Has(package_id)) return false;
  absl::MutexLock lock(&mu_);
  if (removals_ == removals) {
    seen_id_ = std::string(package_id);
    seen_at_ = now;
  }
  return true;
}

void PackageStore::ForgetSeen() const {
  absl::MutexLock lock(&mu_);
  seen_at_ = absl::InfinitePast();
  ++removals_;
}

std::vector<PackageStore::Entry> PackageStore::List() const {
  std::vector<Entry> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator file(folder_, error), end;
       !error && file != end; file.increment(error)) {
    Entry entry = {file->path().filename().string()};
    struct stat st;
    if (!Has(entry.package_id) || stat(file->path().c_str(), &st) != 0) {
      continue;  // One that is being written, or is gone by now.
    }
    entry.bytes = st.st_size;
    entry.last_used = absl::TimeFromTimespec(st.st_mtim);
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.package_id < b.package_id;
  });
  return entries;
}

absl::Status PackageStore::Check(absl::string_view package_id) const {
  if (!Has(package_id)) return absl::OkStatus();
  const std::string path = PathOf(package_id);
  MR_ASSIGN_OR_RETURN(const std::string hash, Sha256OfFile(path));
  if (hash == package_id) return absl::OkStatus();
  unlink(path.c_str());
  ForgetSeen();
  return absl::DataLossError(
      absl::StrCat("the head's copy of package ", package_id,
                   " was damaged on its disk and is removed: create the actor "
                   "(or submit the job) again, which sends the program anew"));
}

void PackageStore::MarkUsed(absl::string_view package_id) const {
  if (!IsValidId(package_id)) return;
  // Fails where it is not there.
  (void)utimensat(AT_FDCWD, PathOf(package_id).c_str(), nullptr, 0);
}

void PackageStore::MakeRoom(int64_t max_bytes,
                            const std::set<std::string>& in_use,
                            absl::Time recent) const {
  std::vector<Entry> entries = List();
  int64_t total = 0;
  for (const Entry& entry : entries) total += entry.bytes;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.last_used < b.last_used;
  });
  for (const Entry& entry : entries) {
    if (total <= max_bytes) break;
    if (in_use.contains(entry.package_id) || entry.last_used >= recent) {
      continue;
    }
    if (unlink(PathOf(entry.package_id).c_str()) == 0) total -= entry.bytes;
  }
  ForgetSeen();
}

void PackageStore::RemoveUnfinished() const {
  std::error_code error;
  for (std::filesystem::directory_iterator file(folder_, error), end;
       !error && file != end; file.increment(error)) {
    const std::string name = file->path().filename().string();
    const size_t id_end = name.find(kUnfinished);
    if (id_end == std::string::npos ||
        !IsValidId(absl::string_view(name).substr(0, id_end))) {
      continue;  // None of ours.
    }
    (void)unlink(file->path().c_str());
  }
}

absl::StatusOr<std::unique_ptr<PackageStore::Writer>> PackageStore::Write(
    absl::string_view package_id) {
  if (!IsValidId(package_id)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", package_id, "' is not a package id (SHA-256 in hex)"));
  }
  MR_RETURN_IF_ERROR(MakeDirectories(folder_, 0700));
  const std::string path = PathOf(package_id);
  const std::string temporary = absl::StrCat(path, ".", NewId("tmp"));
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("create ", temporary));
  return absl::WrapUnique(
      new Writer(std::string(package_id), temporary, path, fd));
}

}  // namespace miniray
