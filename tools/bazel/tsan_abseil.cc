// Makes ThreadSanitizer understand absl::Mutex (bazel test --config=tsan).
//
// Debian's Abseil and gRPC are not built with ThreadSanitizer, so it does not
// see that their locks order memory and would report every access that they
// protect. The definitions below stand before the library's own, for the
// library's calls too: each calls the original and states the order.
//
// They rely on the symbol names of Debian 12's Abseil; a missing one ends the
// program at its first use and is named.

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>
#include <stdio.h>
#include <stdlib.h>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace {

// The mutex that this thread is waiting for or releasing: Abseil evaluates the
// waiters' conditions in whichever thread releases it.
thread_local void* current_mutex = nullptr;

class CurrentMutex {
 public:
  explicit CurrentMutex(void* mutex) : previous_(current_mutex) {
    current_mutex = mutex;
  }
  ~CurrentMutex() { current_mutex = previous_; }

 private:
  void* const previous_;
};

template <typename Function>
Function Original(const char* symbol) {
  void* const found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) {
    fprintf(stderr, "tsan_abseil.cc: this Abseil has no symbol %s\n", symbol);
    abort();
  }
  return reinterpret_cast<Function>(found);
}

}  // namespace

// The original as a function of the object and the arguments.
#define MR_ORIGINAL(result, symbol, ...) \
  static const auto original =           \
      Original<result (*)(__VA_ARGS__)>("_ZN4absl7debian3" symbol)

// A method that returns holding the mutex.
#define MR_ACQUIRES(method, symbol)    \
  void Mutex::method() {               \
    MR_ORIGINAL(void, symbol, Mutex*); \
    original(this);                    \
    __tsan_acquire(this);              \
  }

#define MR_TRIES(method, symbol)       \
  bool Mutex::method() {               \
    MR_ORIGINAL(bool, symbol, Mutex*); \
    const bool held = original(this);  \
    if (held) __tsan_acquire(this);    \
    return held;                       \
  }

#define MR_RELEASES(method, symbol)    \
  void Mutex::method() {               \
    MR_ORIGINAL(void, symbol, Mutex*); \
    CurrentMutex current(this);        \
    __tsan_release(this);              \
    original(this);                    \
  }

// A method that waits for a condition, and in between releases the mutex.
#define MR_WAITS(method, symbol)                         \
  void Mutex::method(const Condition& condition) {       \
    MR_ORIGINAL(void, symbol, Mutex*, const Condition&); \
    CurrentMutex current(this);                          \
    __tsan_release(this);                                \
    original(this, condition);                           \
    __tsan_acquire(this);                                \
  }

#define MR_WAITS_UNTIL(method, limit_type, symbol)                   \
  bool Mutex::method(const Condition& condition, limit_type limit) { \
    MR_ORIGINAL(bool, symbol, Mutex*, const Condition&, limit_type); \
    CurrentMutex current(this);                                      \
    __tsan_release(this);                                            \
    const bool met = original(this, condition, limit);               \
    __tsan_acquire(this);                                            \
    return met;                                                      \
  }

namespace absl {
ABSL_NAMESPACE_BEGIN

MR_ACQUIRES(Lock, "5Mutex4LockEv")
MR_ACQUIRES(ReaderLock, "5Mutex10ReaderLockEv")
MR_TRIES(TryLock, "5Mutex7TryLockEv")
MR_TRIES(ReaderTryLock, "5Mutex13ReaderTryLockEv")
MR_RELEASES(Unlock, "5Mutex6UnlockEv")
MR_RELEASES(ReaderUnlock, "5Mutex12ReaderUnlockEv")
MR_WAITS(Await, "5Mutex5AwaitERKNS0_9ConditionE")
MR_WAITS(LockWhen, "5Mutex8LockWhenERKNS0_9ConditionE")
MR_WAITS(ReaderLockWhen, "5Mutex14ReaderLockWhenERKNS0_9ConditionE")
MR_WAITS_UNTIL(AwaitWithTimeout, Duration,
               "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE")
MR_WAITS_UNTIL(AwaitWithDeadline, Time,
               "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE")
MR_WAITS_UNTIL(LockWhenWithTimeout, Duration,
               "5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE")
MR_WAITS_UNTIL(LockWhenWithDeadline, Time,
               "5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE")
MR_WAITS_UNTIL(
    ReaderLockWhenWithTimeout, Duration,
    "5Mutex25ReaderLockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE")
MR_WAITS_UNTIL(ReaderLockWhenWithDeadline, Time,
               "5Mutex26ReaderLockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE")

bool Condition::Eval() const {
  static const auto original = Original<bool (*)(const Condition*)>(
      "_ZNK4absl7debian39Condition4EvalEv");
  if (current_mutex != nullptr) __tsan_acquire(current_mutex);
  const bool met = original(this);
  if (current_mutex != nullptr) __tsan_release(current_mutex);
  return met;
}

void CondVar::Wait(Mutex* mutex) {
  MR_ORIGINAL(void, "7CondVar4WaitEPNS0_5MutexE", CondVar*, Mutex*);
  CurrentMutex current(mutex);
  __tsan_release(mutex);
  original(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  MR_ORIGINAL(bool, "7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE",
              CondVar*, Mutex*, Duration);
  CurrentMutex current(mutex);
  __tsan_release(mutex);
  const bool expired = original(this, mutex, timeout);
  __tsan_acquire(mutex);
  return expired;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  MR_ORIGINAL(bool, "7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE",
              CondVar*, Mutex*, Time);
  CurrentMutex current(mutex);
  __tsan_release(mutex);
  const bool expired = original(this, mutex, deadline);
  __tsan_acquire(mutex);
  return expired;
}

// HasBeenNotified reads a flag without the mutex, in code that ThreadSanitizer
// does see: an acquire of the flag's address, which follows the mutex.
void Notification::Notify() {
  MR_ORIGINAL(void, "12Notification6NotifyEv", Notification*);
  __tsan_release(this);
  __tsan_release(reinterpret_cast<char*>(this) + sizeof(Mutex));
  original(this);
}

void Notification::WaitForNotification() const {
  static const auto original = Original<void (*)(const Notification*)>(
      "_ZNK4absl7debian312Notification19WaitForNotificationEv");
  original(this);
  __tsan_acquire(const_cast<Notification*>(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static const auto original =
      Original<bool (*)(const Notification*, Duration)>(
          "_ZNK4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_"
          "8DurationE");
  const bool notified = original(this, timeout);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  static const auto original = Original<bool (*)(const Notification*, Time)>(
      "_ZNK4absl7debian312Notification31WaitForNotificationWithDeadlineENS0_"
      "4TimeE");
  const bool notified = original(this, deadline);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}

ABSL_NAMESPACE_END
}  // namespace absl

// Code that ThreadSanitizer did not compile (gRPC, LibTorch, the C++ library)
// calls functions that it does watch; those calls are not judged.
extern "C" const char* __tsan_default_options() {
  return "ignore_noninstrumented_modules=1";
}

// gRPC joins the threads of its timers when it needs another, or shuts down in
// the background; a program that ends first has not leaked them.
extern "C" const char* __tsan_default_suppressions() {
  return "thread:grpc_core::Thread::Thread\n";
}
