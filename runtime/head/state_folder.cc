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
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

bool IsEmptyFile(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 && st.st_size == 0;
}

std::string Finished(const std::string& folder) { return folder + "/finished"; }
std::string Token(const std::string& folder) { return folder + "/token"; }
// Written last: where it is, the database has its tables.
std::string Port(const std::string& folder) { return folder + "/port"; }

absl::StatusOr<ScopedFd> Lock(const std::string& folder) {
  const std::string path = folder + "/lock";
  ScopedFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("another head uses ", folder,
                     ": stop it, or give another --state_dir or --port"));
  }
  return fd;
}

absl::Status RemoveEnded(const std::string& folder) {
  std::error_code error;
  for (const char* name :
       {"port", "token", "head.db", "head.db-wal", "head.db-shm",
        "head.db-unclean", "states", "finished"}) {
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
  if (Exists(Token(path))) {
    MR_ASSIGN_OR_RETURN(what.token, ReadFile(Token(path)));
    absl::StripAsciiWhitespace(&what.token);
  }
  return what;
}

absl::StatusOr<std::unique_ptr<StateFolder>> StateFolder::Open(
    const std::string& path) {
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
  return absl::WrapUnique(
      new StateFolder(path, std::move(lock), Exists(Port(path))));
}

bool StateFolder::InUse(const std::string& path) {
  const ScopedFd fd(open((path + "/lock").c_str(), O_RDWR | O_CLOEXEC));
  return fd.valid() && flock(fd.get(), LOCK_EX | LOCK_NB) != 0;
}

absl::Status StateFolder::Remember(const Remembered& what) {
  if (what.token.empty()) {
    unlink(Token(path_).c_str());
  } else {
    MR_RETURN_IF_ERROR(
        WriteFileAtomically(Token(path_), what.token + "\n", 0600));
  }
  return WriteFileAtomically(Port(path_), absl::StrCat(what.port), 0600);
}

absl::Status StateFolder::Finish() { return Finish(path_); }

absl::Status StateFolder::Finish(const std::string& path) {
  return WriteFileAtomically(Finished(path), "", 0600);
}

}  // namespace miniray
