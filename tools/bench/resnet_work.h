// What `train_functions` lets each of its peers train, and what it asks them.

#ifndef MINIRAY_TOOLS_BENCH_RESNET_WORK_H_
#define MINIRAY_TOOLS_BENCH_RESNET_WORK_H_

#include <cstdint>

namespace miniray::bench {

struct ResNetWork {
  int ranks = 2;
  int64_t batch_size = 0;  // Of each rank.
  int64_t warm_up = 0;     // Steps that do not count, 1 or more.
  int64_t steps = 0;
};

struct ResNetPace {
  double samples_per_second = 0;  // The sum over the ranks.
  int64_t num_parameters = 0;     // Of the network that was trained.
};

}  // namespace miniray::bench

#endif  // MINIRAY_TOOLS_BENCH_RESNET_WORK_H_
