// A node in a process of its own, which is the test's own executable: to be
// killed, or to join later. The test's main is NODE_PROCESS_TEST_MAIN().

#ifndef MINIRAY_TESTS_TRAIN_NODE_PROCESS_H_
#define MINIRAY_TESTS_TRAIN_NODE_PROCESS_H_

#include <string>

#include "tests/train/driver_process.h"

namespace miniray::train {

inline constexpr char kNodeVariable[] = "MINIRAY_TEST_NODE";

class NodeProcess : public DriverProcess {
 public:
  NodeProcess(const std::string& head_address, const std::string& session_dir,
              int cpus = 1);
};

// What such a process does, until it is killed; the exit code if it cannot.
int BeNode(const std::string& what);

}  // namespace miniray::train

#define NODE_PROCESS_TEST_MAIN()                             \
  SPAWNED_PROCESS_TEST_MAIN(::miniray::train::kNodeVariable, \
                            ::miniray::train::BeNode)

#endif  // MINIRAY_TESTS_TRAIN_NODE_PROCESS_H_
