#include "runtime/head/wait_list.h"

#include <algorithm>
#include <utility>

namespace miniray {

void WaitList::Add(const std::string& id, int64_t min_version,
                   absl::Time deadline, Answer answer) {
  waiters_[id].push_back({min_version, deadline, std::move(answer)});
  first_deadline_ = std::min(first_deadline_, deadline);
}

std::vector<WaitList::Answer> WaitList::TakeChanged(const std::string& id,
                                                    int64_t version) {
  std::vector<Answer> answers;
  const auto it = waiters_.find(id);
  if (it == waiters_.end()) return answers;
  std::erase_if(it->second, [&](Waiter& waiter) {
    if (waiter.min_version > version) return false;
    answers.push_back(std::move(waiter.answer));
    return true;
  });
  if (it->second.empty()) waiters_.erase(it);
  return answers;
}

std::vector<WaitList::Answer> WaitList::TakeExpired(absl::Time now) {
  std::vector<Answer> answers;
  if (now < first_deadline_) return answers;
  first_deadline_ = absl::InfiniteFuture();
  for (auto& [id, waiters] : waiters_) {
    std::erase_if(waiters, [&](Waiter& waiter) {
      if (now < waiter.deadline) {
        first_deadline_ = std::min(first_deadline_, waiter.deadline);
        return false;
      }
      answers.push_back(std::move(waiter.answer));
      return true;
    });
  }
  std::erase_if(waiters_, [](const auto& item) { return item.second.empty(); });
  return answers;
}

std::vector<WaitList::Answer> WaitList::TakeAll() {
  return TakeExpired(absl::InfiniteFuture());
}

}  // namespace miniray
