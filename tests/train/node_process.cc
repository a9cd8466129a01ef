#include "tests/train/node_process.h"

#include <unistd.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/worker/worker_daemon.h"

namespace miniray::train {

NodeProcess::NodeProcess(const std::string& head_address,
                         const std::string& session_dir, int cpus)
    : DriverProcess(kNodeVariable,
                    absl::StrCat(head_address, " ", session_dir, " ", cpus)) {}

int BeNode(const std::string& what) {
  const std::vector<std::string> words = absl::StrSplit(what, ' ');
  WorkerDaemon::Options options;
  options.head_address = words.at(0);
  options.session_dir = words.at(1);
  double cpus = 0;
  if (!absl::SimpleAtod(words.at(2), &cpus)) return 1;
  (*options.resources.mutable_quantity())["CPU"] = cpus;
  const auto daemon = WorkerDaemon::Start(options);
  if (!daemon.ok()) return 1;
  while (true) pause();
}

}  // namespace miniray::train
