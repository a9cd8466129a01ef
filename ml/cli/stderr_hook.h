// What a process writes to stderr, by whatever way, on a detour: for who draws
// there and must not be torn.

#ifndef MINIRAY_ML_CLI_STDERR_HOOK_H_
#define MINIRAY_ML_CLI_STDERR_HOOK_H_

#include <cstdio>
#include <functional>

#include "absl/strings/string_view.h"

namespace miniray::ml {

// While it lives, what is written to `stderr` and std::cerr, so glog's lines
// and the output of actors too, goes to `sink`, in whole lines (one of more
// than 64 KiB in parts); from any thread, one call at a time. Only what is
// written to the file descriptor itself goes past it, as a crash's last words
// do. Afterwards all is as it was.
//
// One object at a time. `sink` must not write to stderr, but may to
// RealStderr().
class StderrHook {
 public:
  using Sink = std::function<void(absl::string_view lines)>;

  explicit StderrHook(Sink sink);
  // A line that was begun is written.
  ~StderrHook();
  StderrHook(const StderrHook&) = delete;
  StderrHook& operator=(const StderrHook&) = delete;
};

// What `stderr` is where there is no hook. Unbuffered.
std::FILE* RealStderr();

}  // namespace miniray::ml

#endif  // MINIRAY_ML_CLI_STDERR_HOOK_H_
