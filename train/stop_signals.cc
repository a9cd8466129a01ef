#include "train/stop_signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace miniray::train {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT};

std::atomic<int> received = 0;
// stderr is a terminal: its line has a "^C" by then, and may have a progress
// bar.
std::atomic<bool> on_terminal = false;
static_assert(std::atomic<int>::is_always_lock_free);

ABSL_CONST_INIT absl::Mutex mu(absl::kConstInit);
int num_objects ABSL_GUARDED_BY(mu) = 0;
bool caught[2] ABSL_GUARDED_BY(mu) = {};

// Only what may be called in a signal handler.
void OnSignal(int number) {
  int none = 0;
  if (received.compare_exchange_strong(none, number)) {
    constexpr char kText[] =
        "\ntraining ends after this epoch, with a checkpoint; the next signal "
        "ends it at once\n";
    const int skipped = on_terminal ? 0 : 1;
    if (write(STDERR_FILENO, kText + skipped, sizeof(kText) - 1 - skipped) <
        0) {
      return;
    }
    return;
  }
  signal(number, SIG_DFL);
  raise(number);  // Once this handler has returned.
}

}  // namespace

StopSignals::StopSignals() {
  const absl::MutexLock lock(&mu);
  if (num_objects++ > 0) return;
  received = 0;
  on_terminal = isatty(STDERR_FILENO) == 1;
  for (int i = 0; i < 2; ++i) {
    struct sigaction action = {};
    caught[i] = sigaction(kSignals[i], nullptr, &action) == 0 &&
                (action.sa_flags & SA_SIGINFO) == 0 &&
                action.sa_handler == SIG_DFL;
    if (!caught[i]) continue;
    action = {};
    action.sa_handler = &OnSignal;
    action.sa_flags = SA_RESTART;
    sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  const absl::MutexLock lock(&mu);
  if (--num_objects > 0) return;
  for (int i = 0; i < 2; ++i) {
    if (caught[i]) signal(kSignals[i], SIG_DFL);
  }
}

int StopSignals::Received() { return received; }

const char* StopSignals::Name() {
  return Received() == SIGINT ? "SIGINT" : "SIGTERM";
}

}  // namespace miniray::train
