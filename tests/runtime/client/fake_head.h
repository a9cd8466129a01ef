// Stands in for the head where ActorConnection asks it for an actor's record.

#ifndef MINIRAY_TESTS_RUNTIME_CLIENT_FAKE_HEAD_H_
#define MINIRAY_TESTS_RUNTIME_CLIENT_FAKE_HEAD_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/base/background.h"
#include "runtime/client/actor_connection.h"

namespace miniray {
namespace internal {

// Thread-safe. Held by shared_ptr.
class FakeHead : public std::enable_shared_from_this<FakeHead> {
 public:
  explicit FakeHead(v1::ActorInfo info) : info_(std::move(info)) {}

  // A newer record; its version is made up.
  void Set(v1::ActorInfo info) {
    std::vector<std::shared_ptr<Question>> waiting;
    {
      absl::MutexLock lock(&mu_);
      info.set_version(info_.version() + 1);
      info_ = std::move(info);
      waiting.swap(waiting_);
    }
    for (const auto& question : waiting) Answer(question);
  }

  void SetDown(bool down) {
    absl::MutexLock lock(&mu_);
    down_ = down;
  }

  int lookups() const {
    absl::MutexLock lock(&mu_);
    return lookups_;
  }

  ActorConnection::Lookup lookup() {
    return [self = shared_from_this()](
               v1::GetActorRequest request,
               std::function<void(absl::StatusOr<v1::ActorInfo>)> done) {
      auto question = std::make_shared<Question>();
      question->done = std::move(done);
      absl::Duration wait;
      {
        absl::MutexLock lock(&self->mu_);
        ++self->lookups_;
        if (!self->down_ && self->info_.version() < request.min_version()) {
          self->waiting_.push_back(question);
          wait = absl::Milliseconds(request.wait_ms());
        }
      }
      RunInBackground([self, question] { self->Answer(question); }, wait);
    };
  }

 private:
  struct Question {
    std::function<void(absl::StatusOr<v1::ActorInfo>)> done;
  };

  void Answer(const std::shared_ptr<Question>& question) {
    std::function<void(absl::StatusOr<v1::ActorInfo>)> done;
    absl::StatusOr<v1::ActorInfo> answer;
    {
      absl::MutexLock lock(&mu_);
      done = std::exchange(question->done, nullptr);
      if (down_) {
        answer = absl::UnavailableError("the head does not answer");
      } else {
        answer = info_;
      }
    }
    if (done) done(std::move(answer));
  }

  mutable absl::Mutex mu_;
  v1::ActorInfo info_ ABSL_GUARDED_BY(mu_);
  bool down_ ABSL_GUARDED_BY(mu_) = false;
  int lookups_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::shared_ptr<Question>> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_CLIENT_FAKE_HEAD_H_
