// RuntimeStore: LibTorch's c10d::Store over a RendezvousStore.
//
// Includes c10d's headers, which are slow to compile; users of ProcessGroup
// need it only to give c10d classes of their own a store.

#ifndef MINIRAY_TRAIN_COLLECTIVE_RUNTIME_STORE_H_
#define MINIRAY_TRAIN_COLLECTIVE_RUNTIME_STORE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/api/miniray.h"
#include "torch/csrc/distributed/c10d/Store.hpp"
#include "train/collective/rendezvous_store.h"

namespace miniray::train {

// What the methods throw; what() tells what happened, and status() is what the
// runtime said: UNAVAILABLE, the store's actor is dead.
class StoreError : public std::runtime_error {
 public:
  explicit StoreError(absl::Status status)
      : std::runtime_error(status.ToString()), status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// DEADLINE_EXCEEDED: keys that nobody has set in time, or an actor that does
// not answer.
class StoreTimeout : public std::runtime_error {
 public:
  explicit StoreTimeout(absl::Status status)
      : std::runtime_error(status.ToString()), status_(std::move(status)) {}
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// Thread-safe but for setTimeout. Each method is one call to the actor; waits
// block there. get waits for the key, as the stores of LibTorch do. watchKey is
// not offered.
class RuntimeStore : public c10d::Store {
 public:
  // timeout: of each method, unless wait says another one; at least 1 ms.
  RuntimeStore(ActorHandle<RendezvousStore> store,
               std::chrono::milliseconds timeout);

  // Makes methods that are under way, and all later ones, throw StoreError with
  // this status. The first call counts.
  void Abort(const absl::Status& status);

  using Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key,
                                  const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  // Aborted with this one. Overrides what LibTorch 1.13 does not have yet.
  c10::intrusive_ptr<c10d::Store> clone();
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  // Shared with callbacks of calls that nobody waits for any more.
  struct Sync;

  // Returns the result of `ref`, or throws. `what` names the method, and
  // `allowed` is how long the actor itself may take.
  template <class T>
  auto Await(absl::string_view what, const ObjectRef<T>& ref,
             std::chrono::milliseconds allowed);

  const ActorHandle<RendezvousStore> store_;
  const std::shared_ptr<Sync> sync_;
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_COLLECTIVE_RUNTIME_STORE_H_
