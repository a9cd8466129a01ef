#include "train/collective/rendezvous_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {
namespace {

// Errors that name all keys of a thousand ranks help nobody.
constexpr size_t kMaxNamedKeys = 10;

}  // namespace

ActorOptions RendezvousStore::Options(int world_size) {
  ActorOptions options;
  options.resources.cpu = 0;
  options.num_threads = 1;
  // Threads are started when calls need them.
  options.concurrency_groups = {
      {.name = "wait",
       .max_concurrency = 2 * std::max(1, world_size) + 2,
       .methods = {MethodName<&RendezvousStore::Get>(),
                   MethodName<&RendezvousStore::Wait>()}}};
  return options;
}

void RendezvousStore::Set(const std::string& key, const std::string& value) {
  absl::MutexLock lock(&mu_);
  values_[key] = value;
}

absl::StatusOr<std::string> RendezvousStore::Get(const std::string& key,
                                                 int64_t timeout_ms) {
  absl::MutexLock lock(&mu_);
  MR_RETURN_IF_ERROR(WaitLocked({key}, timeout_ms));
  return values_.at(key);
}

std::string RendezvousStore::CompareSet(const std::string& key,
                                        const std::string& expected,
                                        const std::string& desired) {
  absl::MutexLock lock(&mu_);
  const auto it = values_.find(key);
  if (it == values_.end()) {
    if (!expected.empty()) return expected;
    values_[key] = desired;
    return desired;
  }
  if (it->second == expected) it->second = desired;
  return it->second;
}

absl::StatusOr<int64_t> RendezvousStore::Add(const std::string& key,
                                             int64_t amount) {
  absl::MutexLock lock(&mu_);
  int64_t sum = 0;
  const auto it = values_.find(key);
  if (it != values_.end() && !absl::SimpleAtoi(it->second, &sum)) {
    return absl::InvalidArgumentError(
        absl::StrCat("key '", key, "' holds no number"));
  }
  sum += amount;
  values_[key] = absl::StrCat(sum);
  return sum;
}

bool RendezvousStore::Delete(const std::string& key) {
  absl::MutexLock lock(&mu_);
  return values_.erase(key) > 0;
}

int64_t RendezvousStore::NumKeys() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int64_t>(values_.size());
}

bool RendezvousStore::Check(const std::vector<std::string>& keys) const {
  absl::MutexLock lock(&mu_);
  return Missing(keys).empty();
}

absl::Status RendezvousStore::Wait(const std::vector<std::string>& keys,
                                   int64_t timeout_ms) {
  absl::MutexLock lock(&mu_);
  return WaitLocked(keys, timeout_ms);
}

std::vector<std::string> RendezvousStore::Missing(
    const std::vector<std::string>& keys) const {
  std::vector<std::string> missing;
  for (const std::string& key : keys) {
    if (!values_.contains(key)) missing.push_back(key);
  }
  return missing;
}

absl::Status RendezvousStore::WaitLocked(const std::vector<std::string>& keys,
                                         int64_t timeout_ms) const {
  auto all_there = [this, &keys]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return std::all_of(keys.begin(), keys.end(), [this](const auto& key) {
      return values_.contains(key);
    });
  };
  if (mu_.AwaitWithTimeout(absl::Condition(&all_there),
                           absl::Milliseconds(timeout_ms))) {
    return absl::OkStatus();
  }
  std::vector<std::string> missing = Missing(keys);
  const size_t count = missing.size();
  if (count > kMaxNamedKeys) {
    missing.resize(kMaxNamedKeys);
    missing.push_back(absl::StrCat("and ", count - kMaxNamedKeys, " more"));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "after ", absl::FormatDuration(absl::Milliseconds(timeout_ms)),
      " nobody has set ", absl::StrJoin(missing, ", ")));
}

}  // namespace miniray::train
