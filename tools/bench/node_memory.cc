#include "tools/bench/node_memory.h"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace miniray::bench {
namespace {

namespace fs = std::filesystem;

pid_t ParentOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  // After the name, which may contain anything.
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return 0;
  char state;
  pid_t parent = 0;
  std::sscanf(text.c_str() + end + 1, " %c %d", &state, &parent);
  return parent;
}

std::vector<pid_t> Tree(const std::set<pid_t>& without) {
  std::multimap<pid_t, pid_t> children;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry.path().filename().string(), &pid)) {
      children.emplace(ParentOf(pid), pid);
    }
  }
  std::vector<pid_t> tree = {getpid()};
  for (size_t i = 0; i < tree.size(); ++i) {
    const auto [begin, end] = children.equal_range(tree[i]);
    for (auto it = begin; it != end; ++it) {
      if (without.count(it->second) == 0) tree.push_back(it->second);
    }
  }
  return tree;
}

// Bytes; 0 if the process has gone.
struct Pss {
  int64_t all = 0;
  int64_t shared_memory = 0;
};
Pss PssOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/smaps_rollup"));
  Pss pss;
  std::string line;
  while (std::getline(file, line)) {
    long long kilobytes = 0;
    if (std::sscanf(line.c_str(), "Pss: %lld", &kilobytes) == 1) {
      pss.all = kilobytes * 1024;
    } else if (std::sscanf(line.c_str(), "Pss_Shmem: %lld", &kilobytes) == 1) {
      pss.shared_memory = kilobytes * 1024;
    }
  }
  return pss;
}

// Adds the files in memory that the process has open: bytes by inode.
void FindMemoryFiles(pid_t pid,
                     std::map<std::pair<dev_t, ino_t>, int64_t>* files) {
  std::error_code ignored;
  for (const auto& entry :
       fs::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), ignored)) {
    struct statfs system;
    struct stat file;
    if (statfs(entry.path().c_str(), &system) == 0 &&
        (system.f_type == TMPFS_MAGIC || system.f_type == HUGETLBFS_MAGIC) &&
        stat(entry.path().c_str(), &file) == 0 && S_ISREG(file.st_mode)) {
      (*files)[{file.st_dev, file.st_ino}] = file.st_blocks * 512;
    }
  }
}

}  // namespace

int64_t TreeMemory(const std::set<pid_t>& without) {
  int64_t bytes = 0, shared = 0;
  std::map<std::pair<dev_t, ino_t>, int64_t> files;
  for (const pid_t pid : Tree(without)) {
    const Pss pss = PssOf(pid);
    bytes += pss.all - pss.shared_memory;
    shared += pss.shared_memory;
    FindMemoryFiles(pid, &files);
  }
  int64_t in_files = 0;
  for (const auto& [inode, size] : files) in_files += size;
  // Files are mostly mapped too, so they are not added to what is. Where there
  // are some, they tell: processes are asked one after the other, and a page
  // that another one maps meanwhile counts with more than its size.
  return bytes + (in_files > 0 ? in_files : shared);
}

absl::StatusOr<int64_t> PeakTreeMemory(
    const std::set<pid_t>& without, const std::function<absl::Status()>& work,
    std::atomic<int>* looks) {
  int64_t peak = 0;
  absl::Notification done;
  std::thread sampler([&] {
    do {
      peak = std::max(peak, TreeMemory(without));
      if (looks != nullptr) ++*looks;
    } while (!done.WaitForNotificationWithTimeout(absl::Milliseconds(1)));
  });
  const absl::Status status = work();
  done.Notify();
  sampler.join();
  if (!status.ok()) return status;
  return peak;
}

}  // namespace miniray::bench
