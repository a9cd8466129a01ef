#include "ml/examples/demo_table.h"

#include <iostream>

#include "absl/strings/str_format.h"

namespace miniray::ml {

DemoTable::DemoTable() {
  std::cout << "Weights of all three workers\n"
            << absl::StrFormat("%-10s%16s%16s%16s\n", "strategy", "sync 1",
                               "sync 2", "sync 3");
}

void DemoTable::AddWeights(const std::string& strategy, int sync,
                           const NamedTensors& weights) {
  if (sync == 0) std::cout << absl::StrFormat("%-10s", strategy);
  const float* const values = weights[0].second.data_ptr<float>();
  std::cout << absl::StrFormat(
      "%16s", absl::StrFormat("[%g, %g]", values[0], values[1]));
}

void DemoTable::EndStrategy(const ps::SyncStats& stats) {
  std::cout << std::endl;
  servers_.push_back(stats);
}

void DemoTable::PrintServers() const {
  std::cout << "\nThe servers\n"
            << absl::StrFormat("%-26s%8s%8s%9s%9s%9s\n", "strategy", "version",
                               "syncs", "accepted", "pulled", "pushed");
  for (const ps::SyncStats& server : servers_) {
    std::cout << absl::StrFormat("%-26s%8d%8d%9d%7d B%7d B\n", server.strategy,
                                 server.version, server.num_syncs,
                                 server.contributions_accepted,
                                 server.bytes_pulled, server.bytes_pushed);
  }
}

}  // namespace miniray::ml
