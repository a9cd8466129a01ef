#include "tools/cli/stop_events.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace miniray::cli {
namespace {

// Where the handler writes.
std::atomic<int> g_signal_pipe = -1;

void OnSignal(int number) {
  const int saved_errno = errno;
  const auto byte = static_cast<unsigned char>(number);
  // A full pipe holds reason enough to stop.
  [[maybe_unused]] const ssize_t n = write(g_signal_pipe, &byte, 1);
  errno = saved_errno;
}

void OnBrokenPipe(int) {}

void SetHandler(int number, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, nullptr);
}

bool IsIgnored(int number) {
  struct sigaction action = {};
  return sigaction(number, nullptr, &action) == 0 &&
         action.sa_handler == SIG_IGN;
}

std::string SignalName(int number) {
  const char* const name = sigabbrev_np(number);
  return name == nullptr ? "a signal" : std::string("SIG") + name;
}

}  // namespace

absl::StatusOr<StopEvents> StopEvents::Install(int lifeline_fd) {
  ScopedFd lifeline(lifeline_fd);
  int fds[2];
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) {
    return ErrnoStatus(errno, "make a pipe");
  }
  g_signal_pipe = fds[1];  // Stays open: the handler may run to the end.
  SetHandler(SIGINT, &OnSignal);
  SetHandler(SIGTERM, &OnSignal);
  SetHandler(kFailedStartSignal, &OnSignal);
  if (!IsIgnored(SIGHUP)) SetHandler(SIGHUP, &OnSignal);
  SetHandler(SIGPIPE, &OnBrokenPipe);
  return StopEvents(ScopedFd(fds[0]), std::move(lifeline));
}

bool StopEvents::Pending() const {
  pollfd fds[] = {{signals_.get(), POLLIN, 0}, {lifeline_.get(), POLLIN, 0}};
  return poll(fds, 2, 0) > 0;
}

StopEvents::Event StopEvents::Wait(int child_pidfd) {
  while (true) {
    // poll skips the negative ones.
    pollfd fds[] = {{signals_.get(), POLLIN, 0},
                    {lifeline_.get(), POLLIN, 0},
                    {child_pidfd, POLLIN, 0}};
    if (poll(fds, 3, -1) < 0) continue;  // EINTR
    unsigned char byte;
    if (fds[0].revents != 0 && read(signals_.get(), &byte, 1) == 1) {
      if (byte == kFailedStartSignal) {
        return {Kind::kFailedStart, "a start that failed"};
      }
      return {Kind::kSignal, SignalName(byte)};
    }
    if (fds[1].revents != 0) {
      const ssize_t n = read(lifeline_.get(), &byte, 1);
      const bool again =
          n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
      if (!again) return {Kind::kLifelineEnded, "the end of its lifeline"};
    }
    if (fds[2].revents != 0) return {Kind::kChildEnded, "the end of a child"};
  }
}

}  // namespace miniray::cli
