#include "train/collective/runtime_store.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {
namespace {

// What an answer may take beyond the time that the actor waits.
constexpr auto kSlack = std::chrono::seconds(10);

std::string ToString(const std::vector<uint8_t>& bytes) {
  return std::string(bytes.begin(), bytes.end());
}

std::vector<uint8_t> ToBytes(const std::string& text) {
  return std::vector<uint8_t>(text.begin(), text.end());
}

[[noreturn]] void Throw(absl::string_view what, const absl::Status& status) {
  absl::Status annotated =
      Annotate(status, absl::StrCat("rendezvous store: ", what));
  if (absl::IsDeadlineExceeded(status)) throw StoreTimeout(annotated);
  throw StoreError(annotated);
}

}  // namespace

struct RuntimeStore::Sync {
  absl::Mutex mu;
  absl::Status aborted ABSL_GUARDED_BY(mu);
};

RuntimeStore::RuntimeStore(ActorHandle<RendezvousStore> store,
                           std::chrono::milliseconds timeout)
    : Store(std::max(timeout, std::chrono::milliseconds(1))),
      store_(std::move(store)),
      sync_(std::make_shared<Sync>()) {}

void RuntimeStore::Abort(const absl::Status& status) {
  absl::MutexLock lock(&sync_->mu);
  if (sync_->aborted.ok()) sync_->aborted = status;
}

template <class T>
auto RuntimeStore::Await(absl::string_view what, const ObjectRef<T>& ref,
                         std::chrono::milliseconds allowed) {
  // Not Get, which Abort could not interrupt.
  struct Waiting {
    bool done = false;  // Guarded by sync->mu.
  };
  auto waiting = std::make_shared<Waiting>();
  ref.state()->OnDone([sync = sync_, waiting] {
    absl::MutexLock lock(&sync->mu);
    waiting->done = true;
  });
  absl::Status aborted;
  {
    absl::MutexLock lock(&sync_->mu);
    auto over = [this, &waiting]() ABSL_SHARED_LOCKS_REQUIRED(sync_->mu) {
      return waiting->done || !sync_->aborted.ok();
    };
    sync_->mu.AwaitWithTimeout(absl::Condition(&over),
                               absl::FromChrono(allowed + kSlack));
    aborted = sync_->aborted;
  }
  if (!aborted.ok()) {
    Cancel(ref);
    Throw(what, aborted);
  }
  auto result = ref.Get(absl::ZeroDuration());
  if constexpr (std::is_void_v<T>) {
    if (!result.ok()) Throw(what, result);
  } else {
    if (!result.ok()) Throw(what, result.status());
    return *std::move(result);
  }
}

void RuntimeStore::set(const std::string& key,
                       const std::vector<uint8_t>& value) {
  Await(absl::StrCat("set ", key),
        store_.Call<&RendezvousStore::Set>(key, ToString(value)), timeout_);
}

std::vector<uint8_t> RuntimeStore::compareSet(
    const std::string& key, const std::vector<uint8_t>& expected,
    const std::vector<uint8_t>& desired) {
  return ToBytes(Await(absl::StrCat("compareSet ", key),
                       store_.Call<&RendezvousStore::CompareSet>(
                           key, ToString(expected), ToString(desired)),
                       timeout_));
}

std::vector<uint8_t> RuntimeStore::get(const std::string& key) {
  return ToBytes(Await(
      absl::StrCat("get ", key),
      store_.Call<&RendezvousStore::Get>(key, timeout_.count()), timeout_));
}

int64_t RuntimeStore::add(const std::string& key, int64_t value) {
  return Await(absl::StrCat("add ", key),
               store_.Call<&RendezvousStore::Add>(key, value), timeout_);
}

c10::intrusive_ptr<c10d::Store> RuntimeStore::clone() {
  return c10::make_intrusive<RuntimeStore>(*this);
}

bool RuntimeStore::deleteKey(const std::string& key) {
  return Await(absl::StrCat("deleteKey ", key),
               store_.Call<&RendezvousStore::Delete>(key), timeout_);
}

bool RuntimeStore::check(const std::vector<std::string>& keys) {
  return Await("check", store_.Call<&RendezvousStore::Check>(keys), timeout_);
}

int64_t RuntimeStore::getNumKeys() {
  return Await("getNumKeys", store_.Call<&RendezvousStore::NumKeys>(),
               timeout_);
}

void RuntimeStore::wait(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
}

void RuntimeStore::wait(const std::vector<std::string>& keys,
                        const std::chrono::milliseconds& timeout) {
  // Zero is c10d's word for "for ever", which nothing here waits.
  const std::chrono::milliseconds limit =
      timeout.count() > 0 ? timeout : timeout_;
  Await("wait", store_.Call<&RendezvousStore::Wait>(keys, limit.count()),
        limit);
}

}  // namespace miniray::train
