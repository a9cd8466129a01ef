// Options of PrepareDataLoader. No LibTorch here.

#ifndef MINIRAY_TRAIN_DATA_DATA_LOADER_OPTIONS_H_
#define MINIRAY_TRAIN_DATA_DATA_LOADER_OPTIONS_H_

#include <cstdint>
#include <string>

#include "train/data/tail.h"

namespace miniray::train {

struct DataLoaderOptions {
  int64_t batch_size = 1;  // Samples of a batch on each rank, from 1.
  // Threads that read batches, each with a copy of the data set; 0: the loop's
  // own thread reads. The order of batches is the same with any number.
  int workers = 0;
  int prefetch = 2;  // Batches that each of them reads ahead, from 1.
  Tail tail = Tail::kPad;
  // Leaves out a last batch of fewer than batch_size samples.
  bool drop_last = false;
  bool shuffle = true;  // Anew each epoch; false: in the data set's order.
  uint64_t seed = 0;    // Of the shuffling; the same on all ranks.
  // Where batches of tensors are moved to (train/device.h). Empty: in a train
  // function the rank's device, elsewhere they stay where the data set made
  // them.
  std::string device;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_DATA_LOADER_OPTIONS_H_
