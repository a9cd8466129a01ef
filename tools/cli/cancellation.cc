#include "tools/cli/cancellation.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "tools/cli/stop_events.h"

namespace miniray::cli {

Cancellation::Scope::Scope(Cancellation* cancellation,
                           grpc::ClientContext* context)
    : cancellation_(cancellation) {
  absl::MutexLock lock(&cancellation_->mu_);
  cancellation_->context_ = context;
  if (cancellation_->cancelled_) context->TryCancel();
}

Cancellation::Scope::~Scope() {
  absl::MutexLock lock(&cancellation_->mu_);
  cancellation_->context_ = nullptr;
}

void Cancellation::Cancel() {
  absl::MutexLock lock(&mu_);
  cancelled_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

bool Cancellation::cancelled() const {
  absl::MutexLock lock(&mu_);
  return cancelled_;
}

bool Cancellation::Sleep(absl::Duration time) {
  absl::MutexLock lock(&mu_);
  return mu_.AwaitWithTimeout(absl::Condition(&cancelled_), time);
}

absl::StatusOr<Interruption> RunInterruptibly(
    absl::Duration limit, Cancellation* cancellation,
    const std::function<void()>& work) {
  MR_ASSIGN_OR_RETURN(StopEvents stop, StopEvents::Install(-1));
  const ScopedFd done(eventfd(0, EFD_CLOEXEC));
  if (!done.valid()) return ErrnoStatus(errno, "eventfd");
  std::thread worker([&] {
    work();
    const uint64_t one = 1;
    while (write(done.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  });
  const absl::Time deadline = absl::Now() + limit;
  pollfd fds[] = {{stop.signal_fd(), POLLIN, 0}, {done.get(), POLLIN, 0}};
  int ready;
  do {
    const absl::Duration left =
        std::clamp(deadline - absl::Now(), absl::ZeroDuration(),
                   absl::Duration(absl::Hours(1)));
    ready = poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(left) + 1));
  } while ((ready < 0 && errno == EINTR) ||
           (ready == 0 && absl::Now() < deadline));
  Interruption interruption;
  if (fds[1].revents == 0) {
    if (fds[0].revents != 0) {
      const StopEvents::Event event = stop.Wait();
      interruption = {event.what == "SIGTERM" ? 128 + SIGTERM : 128 + SIGINT,
                      event.what};
    } else {
      interruption = {
          124, absl::StrCat("the time limit of ", absl::FormatDuration(limit))};
    }
    cancellation->Cancel();
  }
  worker.join();
  return interruption;
}

}  // namespace miniray::cli
