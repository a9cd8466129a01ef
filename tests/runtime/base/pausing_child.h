// A process that does some work, stops where it is told to, goes on when it is
// let go, and ends as one that was killed.

#ifndef MINIRAY_TESTS_RUNTIME_BASE_PAUSING_CHILD_H_
#define MINIRAY_TESTS_RUNTIME_BASE_PAUSING_CHILD_H_

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace miniray {

// Not thread-safe; to be made before the test starts threads.
class PausingChild {
 public:
  // `work` runs in the child. It calls `pause` to wait for Continue(), and
  // ends where that is false: the test is gone.
  using Pause = std::function<bool()>;
  explicit PausingChild(const std::function<void(const Pause& pause)>& work) {
    int told[2], answers[2];
    if (pipe(told) != 0) return;
    if (pipe(answers) != 0) {
      close(told[0]);
      close(told[1]);
      return;
    }
    pid_ = fork();
    if (pid_ == 0) {
      close(told[0]);
      close(answers[1]);
      work([&] {
        char byte = 0;
        return write(told[1], &byte, 1) == 1 && read(answers[0], &byte, 1) == 1;
      });
      _exit(0);  // Closes nothing and destroys nothing.
    }
    close(told[1]);
    close(answers[0]);
    told_ = told[0];
    answers_ = answers[1];
  }
  PausingChild(const PausingChild&) = delete;
  PausingChild& operator=(const PausingChild&) = delete;
  ~PausingChild() { End(); }

  // Whether it has come to its next pause; false, it has ended.
  bool AwaitPause() {
    char byte = 0;
    return read(told_, &byte, 1) == 1;
  }

  bool Continue() {
    const char byte = 0;
    return write(answers_, &byte, 1) == 1;
  }

  // From its pause; returns when it is gone.
  void End() {
    if (pid_ <= 0) return;
    close(answers_);
    close(told_);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  int told_ = -1;
  int answers_ = -1;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_BASE_PAUSING_CHILD_H_
