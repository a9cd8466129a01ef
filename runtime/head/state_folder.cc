#include "runtime/head/state_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

bool IsEmptyFile(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 && st.st_size == 0;
}

// Whoever asks InUse holds the lock for a moment.
constexpr int kLockTries = 20;
constexpr absl::Duration kLockPause = absl::Milliseconds(10);

// All of a cluster but its packages.
constexpr const char* kClusterFiles[] = {
    "port",    "host",        "token",       "tls_dir",
    "head.db", "head.db-wal", "head.db-shm", "head.db-unclean",
    "runs.db", "runs.db-wal", "runs.db-shm", "runs.db-damaged",
    "states",  "finished",    kHeadFlagsFile};

std::string Finished(const std::string& folder) { return folder + "/finished"; }
std::string Token(const std::string& folder) { return folder + "/token"; }
std::string Host(const std::string& folder) { return folder + "/host"; }
std::string Tls(const std::string& folder) { return folder + "/tls_dir"; }
std::string LockFile(const std::string& folder) { return folder + "/lock"; }
// Written last: where it is, the database has its tables.
std::string Port(const std::string& folder) { return folder + "/port"; }

// False if another process has removed it meanwhile: its lock is nobody's.
bool IsStillAt(const std::string& path, int fd) {
  struct stat there, own;
  return stat(path.c_str(), &there) == 0 && fstat(fd, &own) == 0 &&
         there.st_dev == own.st_dev && there.st_ino == own.st_ino;
}

absl::StatusOr<ScopedFd> Lock(const std::string& folder) {
  const std::string path = LockFile(folder);
  for (int i = 0; i < kLockTries; ++i) {
    ScopedFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
    if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0 && IsStillAt(path, fd.get())) {
      return fd;
    }
    absl::SleepFor(kLockPause);
  }
  return absl::FailedPreconditionError(
      absl::StrCat("another head uses ", folder,
                   ": stop it, or give another --state_dir or --port"));
}

absl::Status PutText(const std::string& path, const std::string& text) {
  if (!text.empty()) return WriteFileAtomically(path, text + "\n", 0600);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("remove ", path));
  }
  return absl::OkStatus();
}

// Empty: there is none.
absl::StatusOr<std::string> GetText(const std::string& path) {
  if (!Exists(path)) return "";
  MR_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  absl::StripTrailingAsciiWhitespace(&text);
  return text;
}

absl::Status RemoveEnded(const std::string& folder) {
  std::error_code error;
  for (const char* name : kClusterFiles) {
    std::filesystem::remove_all(absl::StrCat(folder, "/", name), error);
    if (error) {
      return absl::PermissionDeniedError(absl::StrCat(
          "cannot remove ", folder, "/", name, ": ", error.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StateFolder::Remembered> StateFolder::Recall(
    const std::string& path) {
  if (Exists(Finished(path))) {
    return absl::NotFoundError("the cluster there has ended");
  }
  Remembered what;
  MR_ASSIGN_OR_RETURN(std::string port, ReadFile(Port(path)));
  if (!absl::SimpleAtoi(port, &what.port)) {
    return absl::DataLossError(
        absl::StrCat(Port(path), " does not hold a port number"));
  }
  MR_ASSIGN_OR_RETURN(what.token, GetText(Token(path)));
  MR_ASSIGN_OR_RETURN(what.host, GetText(Host(path)));
  MR_ASSIGN_OR_RETURN(what.tls_dir, GetText(Tls(path)));
  return what;
}

absl::StatusOr<std::unique_ptr<StateFolder>> StateFolder::Open(
    const std::string& path) {
  const bool made_folder = !Exists(path);
  MR_RETURN_IF_ERROR(MakeDirectories(path, 0700));
  MR_ASSIGN_OR_RETURN(ScopedFd lock, Lock(path));
  if (Exists(Finished(path))) MR_RETURN_IF_ERROR(RemoveEnded(path));
  const std::string database = path + "/head.db";
  if (Exists(Port(path)) && IsEmptyFile(database) &&
      (!Exists(database + "-wal") || IsEmptyFile(database + "-wal"))) {
    return absl::DataLossError(
        absl::StrCat("the head's database ", database,
                     " is damaged (it is empty): put back a copy of it and "
                     "of its -wal, or move it away to begin a new cluster"));
  }
  const bool has_cluster = Exists(Port(path));
  return absl::WrapUnique(new StateFolder(path, std::move(lock), has_cluster,
                                          !has_cluster && !Exists(database),
                                          made_folder));
}

StateFolder::~StateFolder() {
  if (!is_new_ || remembered_) return;
  (void)RemoveEnded(path_);
  // Packages stay where there are any.
  std::error_code error;
  std::filesystem::remove(packages(), error);
  std::filesystem::remove(LockFile(path_), error);
  if (made_folder_) std::filesystem::remove(path_, error);
}

bool StateFolder::InUse(const std::string& path) {
  const ScopedFd fd(open(LockFile(path).c_str(), O_RDONLY | O_CLOEXEC));
  // Shared, so that those who ask do not take each other for a head.
  return fd.valid() && flock(fd.get(), LOCK_SH | LOCK_NB) != 0;
}

absl::Status StateFolder::Remember(const Remembered& what) {
  MR_RETURN_IF_ERROR(PutText(Token(path_), what.token));
  MR_RETURN_IF_ERROR(PutText(Host(path_), what.host));
  MR_RETURN_IF_ERROR(PutText(Tls(path_), what.tls_dir));
  MR_RETURN_IF_ERROR(PutText(Port(path_), absl::StrCat(what.port)));
  remembered_ = true;
  return absl::OkStatus();
}

absl::Status StateFolder::Finish() {
  return WriteFileAtomically(Finished(path_), "", 0600);
}

absl::Status StateFolder::Finish(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const ScopedFd lock, Lock(path));
  return WriteFileAtomically(Finished(path), "", 0600);
}

absl::Status StateFolder::Remove(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const ScopedFd lock, Lock(path));
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (!error) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("cannot remove ", path, ": ", error.message()));
}

}  // namespace miniray
