// A control group in which the kernel's out-of-memory killer is at hand.

#ifndef MINIRAY_TESTS_RUNTIME_WORKER_TIGHT_GROUP_H_
#define MINIRAY_TESTS_RUNTIME_WORKER_TIGHT_GROUP_H_

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/files.h"

namespace miniray {

// Touches so much memory.
inline void TakeMemory(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(memory, 1, bytes);
}

// Has 64 MiB, and no swap. Of version 2 or 1, where this process may make one.
class TightGroup {
 public:
  static constexpr char kWhyNot[] =
      "no control group with a limit can be made here";
  // More than it has.
  static constexpr size_t kTooMuch = size_t{256} << 20;

  TightGroup() {
    const std::string groups = ReadFile("/proc/self/cgroup").value_or("");
    for (absl::string_view line : absl::StrSplit(groups, '\n')) {
      const std::vector<std::string> parts =
          absl::StrSplit(line, absl::MaxSplits(':', 2));
      if (parts.size() < 3) continue;
      if (parts[1].empty()) {
        Make(absl::StrCat("/sys/fs/cgroup", parts[2]),
             {{"memory.max", kLimit}, {"memory.swap.max", "0"}});
      } else if (absl::StrContains(parts[1], "memory")) {
        Make(absl::StrCat("/sys/fs/cgroup/memory", parts[2]),
             {{"memory.limit_in_bytes", kLimit},
              {"memory.memsw.limit_in_bytes", kLimit}});
      }
      if (made()) return;
    }
  }
  ~TightGroup() {
    if (made()) rmdir(folder_.c_str());
  }
  TightGroup(const TightGroup&) = delete;
  TightGroup& operator=(const TightGroup&) = delete;

  bool made() const { return !folder_.empty(); }
  const std::string& folder() const { return folder_; }

  // Brings this process into one.
  static bool Enter(const std::string& folder) {
    return Write(folder + "/cgroup.procs", "0");
  }

  // Has the kernel end a process; returns what waitpid said of it.
  int KillOne() const {
    const pid_t child = fork();
    if (child == 0) {
      if (!Enter(folder_)) _exit(1);
      TakeMemory(kTooMuch);
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
  }

 private:
  static constexpr char kLimit[] = "67108864";

  static bool Write(const std::string& file, const std::string& text) {
    std::ofstream out(file);
    out << text << std::flush;
    return out.good();
  }
  void Make(const std::string& parent,
            const std::vector<std::pair<std::string, std::string>>& limits) {
    const std::string folder =
        absl::StrCat(parent, "/miniray-tight-", getpid());
    if (mkdir(folder.c_str(), 0700) != 0) return;
    folder_ = folder;
    for (const auto& [file, limit] : limits) {
      // A kernel without accounts of swap has no file for it.
      const std::string path = absl::StrCat(folder, "/", file);
      if (access(path.c_str(), F_OK) != 0 && &file != &limits[0].first) {
        continue;
      }
      if (Write(path, limit)) continue;
      rmdir(folder.c_str());
      folder_.clear();
      return;
    }
  }

  std::string folder_;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_WORKER_TIGHT_GROUP_H_
