// What parameter_server_demo prints.

#ifndef MINIRAY_ML_EXAMPLES_DEMO_TABLE_H_
#define MINIRAY_ML_EXAMPLES_DEMO_TABLE_H_

#include <string>
#include <vector>

#include "ps/sync_result.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ml {

inline constexpr int kDemoSyncs = 3;  // Columns of weights.

// A line for each strategy, as it comes, and one for each server at the end.
class DemoTable {
 public:
  DemoTable();  // Prints the headings.

  // weights: of a TinyWorker, after synchronisation `sync`, from 0.
  void AddWeights(const std::string& strategy, int sync,
                  const NamedTensors& weights);
  void EndStrategy(const ps::SyncStats& stats);

  void PrintServers() const;

 private:
  std::vector<ps::SyncStats> servers_;
};

}  // namespace miniray::ml

#endif  // MINIRAY_ML_EXAMPLES_DEMO_TABLE_H_
