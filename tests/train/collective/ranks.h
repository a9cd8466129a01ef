// Ranks of a process group as threads of the test, which is fast.

#ifndef MINIRAY_TESTS_TRAIN_COLLECTIVE_RANKS_H_
#define MINIRAY_TESTS_TRAIN_COLLECTIVE_RANKS_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "torch/csrc/distributed/c10d/HashStore.hpp"
#include "train/collective/process_group.h"

namespace miniray::train {

// Waits until a collective of the group waits for other ranks, at most half a
// minute; returns whether one does.
inline bool AwaitWait(const ProcessGroup& group) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (group.waits() == 0) {
    if (absl::Now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

// Runs `body` for each rank of a started group, in threads of their own, and
// returns what each has returned. A group that did not start is its status.
inline std::vector<absl::Status> RunRanks(
    int world_size,
    const std::function<absl::Status(std::shared_ptr<ProcessGroup>)>& body,
    ProcessGroup::Options options = {}) {
  auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<absl::Status> results(world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      ProcessGroup::Options mine = options;
      mine.rank = rank;
      mine.world_size = world_size;
      auto group = std::make_shared<ProcessGroup>(mine);
      results[rank] = group->Start(*store);
      if (results[rank].ok()) results[rank] = body(std::move(group));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace miniray::train

#endif  // MINIRAY_TESTS_TRAIN_COLLECTIVE_RANKS_H_
