// A test's own executable as a driver: a process that trains, to be killed.

#ifndef MINIRAY_TESTS_TRAIN_DRIVER_PROCESS_H_
#define MINIRAY_TESTS_TRAIN_DRIVER_PROCESS_H_

#include <signal.h>
#include <spawn.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/api/miniray.h"

namespace miniray::train {

class DriverProcess {
 public:
  // The executable's main finds `value` in its environment.
  DriverProcess(const std::string& variable, const std::string& value) {
    std::string entry = absl::StrCat(variable, "=", value);
    std::vector<char*> environment = {entry.data()};
    for (char** other = environ; *other != nullptr; ++other) {
      environment.push_back(*other);
    }
    environment.push_back(nullptr);
    char program[] = "driver";
    char* const argv[] = {program, nullptr};
    EXPECT_EQ(posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, argv,
                          environment.data()),
              0);
  }
  DriverProcess(const DriverProcess&) = delete;
  DriverProcess& operator=(const DriverProcess&) = delete;
  ~DriverProcess() {
    if (pid_ == 0) return;
    Signal(SIGKILL);
    Wait();
  }

  void Signal(int number) { kill(pid_, number); }

  bool Runs() const {
    siginfo_t how = {};
    return waitid(P_PID, static_cast<id_t>(pid_), &how,
                  WEXITED | WNOHANG | WNOWAIT) == 0 &&
           how.si_pid == 0;
  }

  // Blocks until it has ended; returns what waitpid says of it.
  int Wait() {
    int how = 0;
    EXPECT_EQ(waitpid(pid_, &how, 0), pid_);
    pid_ = 0;
    return how;
  }

 private:
  pid_t pid_ = 0;
};

}  // namespace miniray::train

// The main of a test whose executable is something else where `variable` is in
// its environment: what function(value) does.
#define SPAWNED_PROCESS_TEST_MAIN(variable, function)      \
  int main(int argc, char** argv) {                        \
    miniray::Init(argc, argv);                             \
    if (const char* const value = std::getenv(variable)) { \
      return function(value);                              \
    }                                                      \
    testing::InitGoogleTest(&argc, argv);                  \
    return RUN_ALL_TESTS();                                \
  }

#endif  // MINIRAY_TESTS_TRAIN_DRIVER_PROCESS_H_
