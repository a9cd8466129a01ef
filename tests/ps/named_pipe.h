// Named pipes on which workers of tests wait.

#ifndef MINIRAY_TESTS_PS_NAMED_PIPE_H_
#define MINIRAY_TESTS_PS_NAMED_PIPE_H_

#include <fcntl.h>

#include <string>

#include "gtest/gtest.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::ps {

// Returns once somebody has it open for reading, with its other end. Until then
// the call that opens it may be overtaken by the calls of others.
inline int OpenForWriting(const std::string& pipe) {
  int writer = -1;
  EXPECT_TRUE(Eventually([&] {
    writer = open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return writer >= 0;
  }));
  return writer;
}

}  // namespace miniray::ps

#endif  // MINIRAY_TESTS_PS_NAMED_PIPE_H_
