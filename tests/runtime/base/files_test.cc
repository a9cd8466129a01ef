#include "runtime/base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/base/status_matchers.h"
#include "tests/runtime/base/temp_folder.h"

namespace {

// What getuid returns in this program; -1: the truth.
int64_t pretended_uid = -1;

}  // namespace

// Stands before the C library's, so that ownership can be tested by any user in
// any sandbox.
extern "C" uid_t getuid() {
  return pretended_uid >= 0 ? static_cast<uid_t>(pretended_uid)
                            : static_cast<uid_t>(syscall(SYS_getuid));
}

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Permission bits hold for this thread even if it runs as root.
class WithoutPrivileges {
 public:
  WithoutPrivileges() {
    EXPECT_EQ(syscall(SYS_capget, &header_, old_), 0);
    __user_cap_data_struct none[2] = {old_[0], old_[1]};
    none[0].effective &=
        ~((1u << CAP_DAC_OVERRIDE) | (1u << CAP_DAC_READ_SEARCH));
    EXPECT_EQ(syscall(SYS_capset, &header_, none), 0);
  }
  ~WithoutPrivileges() { syscall(SYS_capset, &header_, old_); }

 private:
  __user_cap_header_struct header_ = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct old_[2] = {};
};

// Lowers a soft limit of this process for a while.
class LowLimit {
 public:
  LowLimit(__rlimit_resource resource, rlim_t value) : resource_(resource) {
    EXPECT_EQ(getrlimit(resource_, &old_), 0);
    const rlimit low = {value, old_.rlim_max};
    EXPECT_EQ(setrlimit(resource_, &low), 0);
  }
  ~LowLimit() { setrlimit(resource_, &old_); }

 private:
  const __rlimit_resource resource_;
  rlimit old_ = {};
};

TEST(WriteOutputTest, ReplacesFilesAndFollowsLinks) {
  TempFolder folder;
  ASSERT_THAT(WriteOutput(folder / "file", "one"), IsOk());
  ASSERT_THAT(WriteOutput(folder / "file", "two"), IsOk());
  ASSERT_EQ(symlink("file", (folder / "link").c_str()), 0);
  ASSERT_EQ(symlink((folder / "new").c_str(), (folder / "early").c_str()), 0);
  ASSERT_THAT(WriteOutput(folder / "link", "three"), IsOk());
  ASSERT_THAT(WriteOutput(folder / "early", "four"), IsOk());
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "early"));
  EXPECT_THAT(ReadFile(folder / "file"), IsOkAndHolds("three"));
  EXPECT_THAT(ReadFile(folder / "new"), IsOkAndHolds("four"));
  ASSERT_EQ(symlink("circle", (folder / "circle").c_str()), 0);
  EXPECT_FALSE(WriteOutput(folder / "circle", "five").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "circle"));
}

TEST(WriteOutputTest, WritesIntoAPipeAndLeavesItThere) {
  TempFolder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const ScopedFd reader(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader.valid());
  ASSERT_THAT(WriteOutput(path, "text"), IsOk());
  char buffer[16];
  EXPECT_EQ(read(reader.get(), buffer, sizeof(buffer)), 4);
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

TEST(WriteOutputTest, AFolderIsAnError) {
  TempFolder folder;
  EXPECT_FALSE(WriteOutput(folder.path(), "text").ok());
  EXPECT_TRUE(std::filesystem::is_directory(folder.path()));
}

class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    const char* old = getenv(name);
    was_set_ = old != nullptr;
    if (was_set_) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() {
    if (was_set_) {
      setenv(name_, old_.c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }

 private:
  const char* const name_;
  bool was_set_;
  std::string old_;
};

class PretendedUid {
 public:
  explicit PretendedUid(uid_t uid) { pretended_uid = uid; }
  ~PretendedUid() { pretended_uid = -1; }
};

mode_t ModeOf(const std::string& path) {
  struct stat st = {};
  EXPECT_EQ(stat(path.c_str(), &st), 0) << path;
  return st.st_mode & 07777;
}

struct ErrnoCase {
  int error;
  absl::StatusCode code;
};

class ErrnoStatusTest : public ::testing::TestWithParam<ErrnoCase> {};

TEST_P(ErrnoStatusTest, CodeAndText) {
  EXPECT_THAT(ErrnoStatus(GetParam().error, "open x"),
              StatusIs(GetParam().code,
                       absl::StrCat("open x: ", strerror(GetParam().error))));
}

using Code = absl::StatusCode;
INSTANTIATE_TEST_SUITE_P(
    All, ErrnoStatusTest,
    ::testing::Values(ErrnoCase{ENOENT, Code::kNotFound},
                      ErrnoCase{ENOTDIR, Code::kNotFound},
                      ErrnoCase{EEXIST, Code::kAlreadyExists},
                      ErrnoCase{EACCES, Code::kPermissionDenied},
                      ErrnoCase{EPERM, Code::kPermissionDenied},
                      ErrnoCase{EROFS, Code::kPermissionDenied},
                      ErrnoCase{ENOSPC, Code::kResourceExhausted},
                      ErrnoCase{EDQUOT, Code::kResourceExhausted},
                      ErrnoCase{ENOMEM, Code::kResourceExhausted},
                      ErrnoCase{EMFILE, Code::kResourceExhausted},
                      ErrnoCase{ENFILE, Code::kResourceExhausted},
                      ErrnoCase{EAGAIN, Code::kResourceExhausted},
                      ErrnoCase{EINVAL, Code::kInvalidArgument},
                      ErrnoCase{ENAMETOOLONG, Code::kInvalidArgument},
                      ErrnoCase{EISDIR, Code::kInvalidArgument},
                      ErrnoCase{EADDRINUSE, Code::kUnavailable},
                      ErrnoCase{ECONNREFUSED, Code::kUnavailable},
                      ErrnoCase{ECONNRESET, Code::kUnavailable},
                      ErrnoCase{EPIPE, Code::kUnavailable},
                      ErrnoCase{EIO, Code::kUnknown}));

// --- Reading.

TEST(ReadFileTest, WholeFileOfAnySize) {
  const TempFolder folder;
  for (size_t size : {0u, 1u, 65535u, 65536u, 65537u, 300000u}) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31);
    ASSERT_THAT(WriteFileAtomically(folder / "f", bytes), IsOk());
    const auto read = ReadFile(folder / "f");
    ASSERT_THAT(read, IsOk());
    EXPECT_TRUE(*read == bytes) << size;
  }
}

TEST(ReadFileTest, FilesWithoutASizeAreReadToTheEnd) {
  EXPECT_THAT(ReadFile("/proc/self/status").value(), HasSubstr("Pid:"));
  EXPECT_THAT(ReadFileTail("/dev/null", 10).value(), IsEmpty());
}

TEST(ReadFileTest, Tail) {
  const TempFolder folder;
  ASSERT_THAT(WriteFileAtomically(folder / "f", "0123456789"), IsOk());
  EXPECT_EQ(ReadFileTail(folder / "f", 3).value(), "789");
  EXPECT_EQ(ReadFileTail(folder / "f", 10).value(), "0123456789");
  EXPECT_EQ(ReadFileTail(folder / "f", 11).value(), "0123456789");
  EXPECT_EQ(ReadFileTail(folder / "f", 0).value(), "");
}

TEST(ReadFileTest, EveryErrorNamesThePath) {
  const TempFolder folder;
  const std::string file = folder / "file";
  ASSERT_THAT(WriteFileAtomically(file, "x"), IsOk());
  EXPECT_THAT(ReadFile(folder / "none"),
              StatusIs(Code::kNotFound, HasSubstr(folder / "none")));
  EXPECT_THAT(ReadFile(file + "/x"),
              StatusIs(Code::kNotFound, HasSubstr(file + "/x")));
  EXPECT_THAT(ReadFile(folder.path()),
              StatusIs(Code::kInvalidArgument,
                       AllOf(StartsWith("read "), HasSubstr(folder.path()))));
  EXPECT_THAT(
      ReadFile(folder / std::string(300, 'x')),
      StatusIs(Code::kInvalidArgument, HasSubstr("File name too long")));
  const std::string loop = folder / "loop";
  ASSERT_EQ(symlink("loop", loop.c_str()), 0);
  EXPECT_THAT(ReadFile(loop), StatusIs(Code::kUnknown, HasSubstr(loop)));
  ASSERT_EQ(chmod(file.c_str(), 0), 0);
  const WithoutPrivileges unprivileged;
  EXPECT_THAT(ReadFile(file),
              StatusIs(Code::kPermissionDenied, HasSubstr(file)));
}

TEST(ReadFileTest, NoDescriptorIsLeft) {
  const LowLimit limit(RLIMIT_NOFILE, 0);
  EXPECT_THAT(ReadFile("/dev/null"),
              StatusIs(Code::kResourceExhausted, HasSubstr("/dev/null")));
  EXPECT_THAT(Sha256OfFile("/dev/null"),
              StatusIs(Code::kResourceExhausted, HasSubstr("/dev/null")));
  EXPECT_THAT(WriteFileAtomically(::testing::TempDir() + "/f", ""),
              StatusIs(Code::kResourceExhausted));
}

// --- Writing.

TEST(WriteFileAtomicallyTest, MakesAndReplaces) {
  const TempFolder folder;
  ASSERT_THAT(WriteFileAtomically(folder / "f", "one", 0600), IsOk());
  EXPECT_EQ(ReadFile(folder / "f").value(), "one");
  EXPECT_EQ(ModeOf(folder / "f"), 0600u);
  ASSERT_THAT(WriteFileAtomically(folder / "f", "two", 0640), IsOk());
  EXPECT_EQ(ReadFile(folder / "f").value(), "two");
  EXPECT_EQ(ModeOf(folder / "f"), 0640u);
  EXPECT_THAT(folder.List(), ElementsAre("f"));
}

TEST(WriteFileAtomicallyTest, AReaderOfTheOldFileKeepsIt) {
  const TempFolder folder;
  ASSERT_THAT(WriteFileAtomically(folder / "f", "old"), IsOk());
  const ScopedFd open_file(open((folder / "f").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_THAT(WriteFileAtomically(folder / "f", "new"), IsOk());
  char text[8] = {};
  EXPECT_EQ(read(open_file.get(), text, sizeof(text)), 3);
  EXPECT_STREQ(text, "old");
}

TEST(WriteFileAtomicallyTest, AFailedWriteLeavesTheOldFileAndNothingElse) {
  const TempFolder folder;
  ASSERT_THAT(WriteFileAtomically(folder / "f", "old"), IsOk());
  struct sigaction ignore = {}, old;
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(sigaction(SIGXFSZ, &ignore, &old), 0);
  {
    const LowLimit limit(RLIMIT_FSIZE, 2);  // Like a full disk: a short write,
    EXPECT_THAT(WriteFileAtomically(folder / "f", "new text"),  // then none.
                StatusIs(Code::kResourceExhausted,
                         AllOf(StartsWith("write "), HasSubstr(folder / "f"),
                               HasSubstr("File too large"))));
  }
  sigaction(SIGXFSZ, &old, nullptr);
  EXPECT_EQ(ReadFile(folder / "f").value(), "old");
  EXPECT_THAT(folder.List(), ElementsAre("f"));
}

TEST(WriteFileAtomicallyTest, AFailedRenameLeavesNothing) {
  const TempFolder folder;
  ASSERT_EQ(mkdir((folder / "d").c_str(), 0700), 0);
  EXPECT_THAT(WriteFileAtomically(folder / "d", "text"),
              StatusIs(Code::kInvalidArgument, AllOf(StartsWith("rename to "),
                                                     HasSubstr(folder / "d"))));
  EXPECT_THAT(folder.List(), ElementsAre("d"));
}

TEST(WriteFileAtomicallyTest, NoFolder) {
  const TempFolder folder;
  EXPECT_THAT(WriteFileAtomically(folder / "no/f", "x"),
              StatusIs(Code::kNotFound,
                       AllOf(StartsWith("create "), HasSubstr("no/f"))));
  EXPECT_THAT(folder.List(), IsEmpty());
}

TEST(WriteFileAtomicallyTest, AFolderThatMayNotBeWritten) {
  const TempFolder folder;
  ASSERT_EQ(mkdir((folder / "d").c_str(), 0500), 0);
  const WithoutPrivileges unprivileged;
  EXPECT_THAT(WriteFileAtomically(folder / "d/f", "x"),
              StatusIs(Code::kPermissionDenied, HasSubstr("d/f")));
}

// --- Folders.

TEST(MakeDirectoriesTest, MakesParentsAndIsContentWithWhatIsThere) {
  const TempFolder folder;
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(MakeDirectories(folder / "a/b/c", 0700), IsOk());
  }
  EXPECT_EQ(ModeOf(folder / "a"), 0700u);
  EXPECT_EQ(ModeOf(folder / "a/b/c"), 0700u);
  EXPECT_THAT(MakeDirectories(folder / "x//y/"), IsOk());
  EXPECT_EQ(ModeOf(folder / "x/y") & 0700u, 0700u);
  EXPECT_THAT(MakeDirectories("/"), IsOk());
}

TEST(MakeDirectoriesTest, FollowsLinksToFolders) {
  const TempFolder folder;
  ASSERT_EQ(mkdir((folder / "real").c_str(), 0700), 0);
  ASSERT_EQ(symlink("real", (folder / "link").c_str()), 0);
  EXPECT_THAT(MakeDirectories(folder / "link/sub"), IsOk());
  EXPECT_TRUE(std::filesystem::is_directory(folder / "real/sub"));
}

TEST(MakeDirectoriesTest, AFileInTheWayIsNamed) {
  const TempFolder folder;
  ASSERT_THAT(WriteFileAtomically(folder / "f", "x"), IsOk());
  EXPECT_THAT(MakeDirectories(folder / "f"),
              StatusIs(Code::kNotFound, AllOf(HasSubstr(folder / "f"),
                                              HasSubstr("Not a directory"))));
  EXPECT_THAT(MakeDirectories(folder / "f/sub"),
              StatusIs(Code::kNotFound, HasSubstr(folder / "f/sub")));
  ASSERT_EQ(symlink("nowhere", (folder / "dangling").c_str()), 0);
  EXPECT_THAT(MakeDirectories(folder / "dangling"),
              StatusIs(Code::kNotFound, HasSubstr(folder / "dangling")));
}

TEST(MakeDirectoriesTest, NoNameAndNoPermission) {
  const TempFolder folder;
  EXPECT_THAT(MakeDirectories(""), StatusIs(Code::kNotFound));
  ASSERT_EQ(mkdir((folder / "d").c_str(), 0500), 0);
  const WithoutPrivileges unprivileged;
  EXPECT_THAT(MakeDirectories(folder / "d/sub"),
              StatusIs(Code::kPermissionDenied, HasSubstr("d/sub")));
}

// --- Hashes and paths.

TEST(Sha256OfFileTest, KnownHashes) {
  const TempFolder folder;
  ASSERT_THAT(WriteFileAtomically(folder / "f", ""), IsOk());
  // FIPS 180-4 examples and the empty message.
  EXPECT_EQ(Sha256OfFile(folder / "f").value(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  ASSERT_THAT(WriteFileAtomically(folder / "f", "abc"), IsOk());
  EXPECT_EQ(Sha256OfFile(folder / "f").value(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  ASSERT_THAT(WriteFileAtomically(folder / "f", std::string(3 << 20, 'a')),
              IsOk());
  const std::string large = Sha256OfFile(folder / "f").value();
  ASSERT_THAT(WriteFileAtomically(folder / "f", std::string(1000000, 'a')),
              IsOk());
  EXPECT_EQ(Sha256OfFile(folder / "f").value(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_NE(Sha256OfFile(folder / "f").value(), large);
}

TEST(Sha256OfFileTest, Errors) {
  const TempFolder folder;
  EXPECT_THAT(Sha256OfFile(folder / "none"),
              StatusIs(Code::kNotFound, HasSubstr(folder / "none")));
  EXPECT_THAT(Sha256OfFile(folder.path()),
              StatusIs(Code::kInvalidArgument, HasSubstr(folder.path())));
}

TEST(ExecutablePathTest, IsThisProgram) {
  const auto path = ExecutablePath();
  ASSERT_THAT(path, IsOk());
  EXPECT_THAT(*path, AllOf(StartsWith("/"), EndsWith("files_test")));
  EXPECT_EQ(Sha256OfFile(*path).value(),
            Sha256OfFile("/proc/self/exe").value());
}

// --- RuntimeDirectory.

TEST(RuntimeDirectoryTest, MadePrivateWithItsParents) {
  const TempFolder folder;
  const ScopedVariable set("MINIRAY_RUNTIME_DIR", folder / "a/b");
  EXPECT_EQ(RuntimeDirectory().value(), folder / "a/b");
  EXPECT_EQ(ModeOf(folder / "a/b"), 0700u);
  EXPECT_EQ(RuntimeDirectory().value(), folder / "a/b");  // It exists now.
}

TEST(RuntimeDirectoryTest, SlashesAtTheEndGo) {
  const TempFolder folder;
  const ScopedVariable set("MINIRAY_RUNTIME_DIR", folder / "a//");
  EXPECT_EQ(RuntimeDirectory().value(), folder / "a");
}

TEST(RuntimeDirectoryTest, ARelativePathIsMadeAbsolute) {
  const TempFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const std::string here = std::filesystem::current_path().string();
  {
    const ScopedVariable set("MINIRAY_RUNTIME_DIR", "run/miniray");
    // Other processes, in other folders, are told the path.
    EXPECT_EQ(RuntimeDirectory().value(), here + "/run/miniray");
  }
  std::filesystem::current_path(before);
  EXPECT_TRUE(std::filesystem::is_directory(folder / "run/miniray"));
}

TEST(RuntimeDirectoryTest, ByDefaultInTheTemporaryFolderByUser) {
  const TempFolder folder;
  const ScopedVariable unset("MINIRAY_RUNTIME_DIR", "");
  const std::string name = absl::StrCat("/miniray-", getuid());
  {
    const ScopedVariable tmp("TMPDIR", folder.path());
    EXPECT_EQ(RuntimeDirectory().value(), folder.path() + name);
    EXPECT_EQ(ModeOf(folder.path() + name), 0700u);
  }
  // A relative TMPDIR would name another folder for each process.
  const ScopedVariable tmp("TMPDIR", "relative");
  const PretendedUid nobody(4000000000);  // Not this user's real folder.
  const std::string in_tmp = "/tmp/miniray-4000000000";
  EXPECT_THAT(RuntimeDirectory(),
              StatusIs(Code::kPermissionDenied, StartsWith(in_tmp + " ")));
  rmdir(in_tmp.c_str());
}

TEST(RuntimeDirectoryTest, AnotherUsersFolderIsRefused) {
  const TempFolder folder;
  const ScopedVariable set("MINIRAY_RUNTIME_DIR", folder / "theirs");
  ASSERT_THAT(MakeDirectories(folder / "theirs"), IsOk());
  const PretendedUid other(getuid() + 1);
  EXPECT_THAT(RuntimeDirectory(),
              StatusIs(Code::kPermissionDenied,
                       AllOf(HasSubstr(folder / "theirs"),
                             HasSubstr("MINIRAY_RUNTIME_DIR"))));
}

TEST(RuntimeDirectoryTest, ALinkOrAFileIsRefused) {
  const TempFolder folder;
  ASSERT_EQ(mkdir((folder / "real").c_str(), 0700), 0);
  ASSERT_EQ(symlink("real", (folder / "link").c_str()), 0);
  ASSERT_THAT(WriteFileAtomically(folder / "file", "x"), IsOk());
  for (const char* name : {"link", "file"}) {
    const ScopedVariable set("MINIRAY_RUNTIME_DIR", folder / name);
    EXPECT_THAT(RuntimeDirectory(),
                StatusIs(Code::kPermissionDenied, HasSubstr(folder / name)));
  }
}

TEST(RuntimeDirectoryTest, APlaceThatCannotBeMade) {
  const TempFolder folder;
  ASSERT_THAT(WriteFileAtomically(folder / "file", "x"), IsOk());
  const ScopedVariable set("MINIRAY_RUNTIME_DIR", folder / "file/sub");
  EXPECT_THAT(RuntimeDirectory(),
              StatusIs(Code::kNotFound, HasSubstr(folder / "file/sub")));
}

// --- ScopedFd.

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(ScopedFdTest, ClosesOnceAndMoves) {
  int raw;
  {
    ScopedFd fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    raw = fd.get();
    ScopedFd other(std::move(fd));
    EXPECT_FALSE(fd.valid());
    EXPECT_EQ(other.get(), raw);
    ScopedFd third;
    EXPECT_FALSE(third.valid());
    third = std::move(other);
    ScopedFd& alias = third;
    third = std::move(alias);  // To itself: nothing happens.
    EXPECT_EQ(third.get(), raw);
    EXPECT_TRUE(IsOpen(raw));
  }
  EXPECT_FALSE(IsOpen(raw));
}

TEST(ScopedFdTest, AssignmentClosesTheOldOneAndReleaseKeepsIt) {
  ScopedFd fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int first = fd.get();
  ScopedFd next(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  const int second = next.get();
  fd = std::move(next);
  EXPECT_FALSE(IsOpen(first));
  EXPECT_EQ(fd.release(), second);
  EXPECT_FALSE(fd.valid());
  EXPECT_TRUE(IsOpen(second));
  close(second);
}

}  // namespace
}  // namespace miniray
