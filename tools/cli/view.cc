#include "tools/cli/view.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "tools/cli/fail.h"
#include "tools/cli/flags.h"
#include "tools/cli/head_client.h"
#include "tools/cli/screen.h"
#include "tools/cli/table_format.h"
#include "tools/cli/time_limit.h"
#include "tools/cli/write_out.h"

namespace miniray::cli {
namespace {

absl::Duration Interval() {
  return absl::Seconds(absl::GetFlag(FLAGS_interval));
}

bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

absl::Status LimitIsOver(absl::Duration limit) {
  return absl::DeadlineExceededError(absl::StrCat(
      "the time limit of ", absl::FormatDuration(limit), " is over"));
}

// Errors: ABORTED, nobody reads any more. DATA_LOSS.
absl::Status Print(const std::string& text) {
  const int error = WriteOut(text);
  if (error == 0) return absl::OkStatus();
  if (error == EPIPE) return absl::AbortedError("nobody reads the output");
  return absl::DataLossError(
      ErrnoStatus(error, "cannot write the output").message());
}

// Fetches again and again, in a thread of its own.
class Fetcher {
 public:
  Fetcher(View* view, absl::Duration interval, ScopedFd wake)
      : view_(view),
        interval_(interval),
        wake_(std::move(wake)),
        thread_([this] { Loop(); }) {}

  ~Fetcher() {
    cancellation_.Cancel();
    thread_.join();
  }

  // Readable after a Fetch, until the next Take.
  int wake_fd() const { return wake_.get(); }

  struct News {
    absl::Status status;               // Of the last Fetch.
    absl::Time good_at = absl::Now();  // When the last one went well.
  };
  News Take() ABSL_LOCKS_EXCLUDED(mu_) {
    uint64_t times;
    [[maybe_unused]] const ssize_t n = read(wake_.get(), &times, sizeof(times));
    absl::MutexLock lock(&mu_);
    return news_;
  }

 private:
  void Loop() ABSL_LOCKS_EXCLUDED(mu_) {
    while (!cancellation_.Sleep(interval_)) {
      const absl::Status status =
          view_->Fetch(kQuestionTimeout, &cancellation_);
      {
        absl::MutexLock lock(&mu_);
        news_.status = status;
        if (status.ok()) news_.good_at = absl::Now();
      }
      const uint64_t one = 1;
      while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
      }
    }
  }

  View* const view_;
  const absl::Duration interval_;
  const ScopedFd wake_;
  Cancellation cancellation_;
  absl::Mutex mu_;
  News news_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;  // Last: it uses the others.
};

// Above what there was, where the head does not answer any more.
Frame WithNotice(const Fetcher::News& news, Frame frame) {
  if (news.status.ok()) return frame;
  frame.lines.insert(
      frame.lines.begin(),
      absl::StrCat("What follows is ",
                   absl::ToInt64Seconds(absl::Now() - news.good_at),
                   " s old: ", OneLine(news.status.message())));
  std::set<size_t> inverse = {0};
  for (const size_t line : frame.inverse) inverse.insert(line + 1);
  frame.inverse = std::move(inverse);
  return frame;
}

// What ends the showing: OK and 0, or a failure, or a signal's code.
struct Ending {
  absl::Status status;
  int code = kDone;
};

Ending Loop(absl::Duration limit, absl::Time deadline, View* view,
            Fetcher* fetcher, Screen* screen) {
  while (true) {
    const absl::Status drawn =
        screen->Draw(WithNotice(fetcher->Take(), view->Show(screen->size())));
    if (!drawn.ok()) return {drawn, kFailed};
    const Screen::Event event = screen->Wait(deadline, fetcher->wake_fd());
    switch (event.kind) {
      case Screen::Event::Kind::kTime:
        return {LimitIsOver(limit), kTimeLimit};
      case Screen::Event::Kind::kStop:
        return {absl::OkStatus(), 128 + event.signal};
      case Screen::Event::Kind::kKey:
        if (event.key == 'q' || event.key == 'Q') return {};
        view->OnKey(event.key);
        break;
      default:
        break;
    }
  }
}

}  // namespace

absl::Status CheckIntervalFlag(const CommandLine& line) {
  const double seconds = absl::GetFlag(FLAGS_interval);
  if (!line.Has("interval") || (seconds >= 0.1 && seconds <= 3600)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--interval=", seconds, ": expected seconds, from 0.1 to 3600"));
}

int ShowOnScreen(const CommandLine& line, View* view) {
  const absl::Duration limit = TimeLimit(line, absl::InfiniteDuration());
  const absl::Time deadline = absl::Now() + limit;
  // The terminal is not touched before there is something to see.
  Cancellation none;
  const absl::Status first =
      view->Fetch(std::min(limit, kQuestionTimeout), &none);
  if (!first.ok()) return Finish(first);
  ScopedFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return Fail(ErrnoStatus(errno, "eventfd"));
  Ending ending;
  {
    absl::StatusOr<std::unique_ptr<Screen>> screen =
        Screen::Open(STDIN_FILENO, STDOUT_FILENO);
    if (!screen.ok()) return Fail(screen.status());
    Fetcher fetcher(view, Interval(), std::move(wake));
    ending = Loop(limit, deadline, view, &fetcher, screen->get());
  }
  return ending.status.ok() ? ending.code : Fail(ending.status, ending.code);
}

int PrintNews(const CommandLine& line, const HeadClient& head,
              const TellNews& tell) {
  const absl::Duration limit = TimeLimit(line, absl::InfiniteDuration());
  Cancellation cancellation;
  absl::Status status;
  bool has_answered = false;
  const auto work = [&] {
    bool is_away = false;
    do {
      const absl::StatusOr<std::string> news = tell(
          has_answered ? kQuestionTimeout : std::min(limit, kQuestionTimeout),
          &cancellation);
      if (cancellation.cancelled()) return;
      status = news.ok() ? Print(*news) : news.status();
      if (!status.ok() && !(has_answered && IsAway(status))) return;
      if (status.ok()) {
        has_answered = true;
        is_away = false;
      } else if (!std::exchange(is_away, true)) {
        std::cerr << "miniray: " << OneLine(status.message())
                  << "; waiting for it" << std::endl;
      }
    } while (!cancellation.Sleep(Interval()));
  };
  const absl::StatusOr<Interruption> interruption =
      RunInterruptibly(limit, &cancellation, work);
  if (!interruption.ok()) return Fail(interruption.status());
  if (interruption->exit_code == kTimeLimit) {
    return Fail(has_answered ? LimitIsOver(limit)
                             : head.Explain(grpc::Status(
                                   grpc::StatusCode::DEADLINE_EXCEEDED, "")),
                kTimeLimit);
  }
  if (interruption->exit_code != 0) return interruption->exit_code;
  // `miniray status --watch | head` is no failure.
  if (absl::IsAborted(status)) return kDone;
  return Finish(status);
}

}  // namespace miniray::cli
