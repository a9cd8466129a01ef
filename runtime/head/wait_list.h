// Who waits for a record to change (GetActor and its like), by the record's id.

#ifndef MINIRAY_RUNTIME_HEAD_WAIT_LIST_H_
#define MINIRAY_RUNTIME_HEAD_WAIT_LIST_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace miniray {

// Not thread-safe.
class WaitList {
 public:
  using Answer = std::function<void()>;
  static constexpr int64_t kAnyVersion = std::numeric_limits<int64_t>::max();

  void Add(const std::string& id, int64_t min_version, absl::Time deadline,
           Answer answer);

  // Take out those who need wait no longer: the record has this version, the
  // time is up, or nobody may wait any more.
  std::vector<Answer> TakeChanged(const std::string& id, int64_t version);
  std::vector<Answer> TakeExpired(absl::Time now);
  std::vector<Answer> TakeAll();

 private:
  struct Waiter {
    int64_t min_version;
    absl::Time deadline;
    Answer answer;
  };
  std::map<std::string, std::vector<Waiter>> waiters_;
  absl::Time first_deadline_ = absl::InfiniteFuture();  // Or earlier.
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_WAIT_LIST_H_
