#include "runtime/worker/output_capture.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

constexpr size_t kReadBytes = 64 << 10;
// Of one process before the next one has its turn.
constexpr int kReadsPerTurn = 4;
// A longer line reaches the sink in pieces.
constexpr size_t kMaxLineBytes = 64 << 10;
constexpr int64_t kWakeId = 0;

}  // namespace

void OutputCapture::Stream::set_pid(pid_t pid) {
  absl::MutexLock lock(&capture_->mu_);
  const auto it = capture_->sources_.find(id_);
  if (it != capture_->sources_.end()) it->second->origin.set_pid(pid);
}

OutputCapture::Stream::~Stream() {
  if (!finished_) Finish([] {});  // Its process never came to be.
}

void OutputCapture::Stream::Finish(std::function<void()> done) {
  ReleaseWriteEnd();
  finished_ = true;
  {
    absl::MutexLock lock(&capture_->mu_);
    Source& source = *capture_->sources_.at(id_);
    source.done = std::move(done);
    source.deadline = absl::Now() + capture_->options_.drain_timeout;
  }
  capture_->Wake();
}

absl::StatusOr<std::unique_ptr<OutputCapture>> OutputCapture::Create(
    Options options) {
  auto capture = absl::WrapUnique(new OutputCapture(std::move(options)));
  capture->epoll_ = ScopedFd(epoll_create1(EPOLL_CLOEXEC));
  if (!capture->epoll_.valid()) return ErrnoStatus(errno, "epoll");
  capture->wake_ = ScopedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!capture->wake_.valid()) return ErrnoStatus(errno, "eventfd");
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = kWakeId;
  if (epoll_ctl(capture->epoll_.get(), EPOLL_CTL_ADD, capture->wake_.get(),
                &event) != 0) {
    return ErrnoStatus(errno, "epoll");
  }
  capture->thread_ = std::thread([c = capture.get()] { c->Loop(); });
  return capture;
}

OutputCapture::~OutputCapture() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mu_);
    ending_ = true;
  }
  Wake();
  thread_.join();
}

void OutputCapture::Wake() {
  const uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof(one)) < 0 && errno != EAGAIN) {
    PLOG(ERROR) << "eventfd";
  }
}

absl::StatusOr<std::shared_ptr<OutputCapture::Stream>> OutputCapture::Open(
    const std::string& path, v1::ProcessOutput origin) {
  MR_ASSIGN_OR_RETURN(LogFile file, LogFile::Open(path, options_.file));
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  auto source = absl::WrapUnique(
      new Source{.read_end = ScopedFd(fds[0]), .file = std::move(file)});
  auto stream = std::shared_ptr<Stream>(new Stream);
  stream->capture_ = this;
  stream->path_ = path;
  {
    absl::MutexLock end_lock(&stream->end_mu_);
    stream->write_end_ = ScopedFd(fds[1]);
  }
  // The process's end stays a blocking one.
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  source->origin = std::move(origin);
  absl::MutexLock lock(&mu_);
  stream->id_ = ++last_id_;
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = static_cast<uint64_t>(stream->id_);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fds[0], &event) != 0) {
    return ErrnoStatus(errno, "epoll");
  }
  sources_[stream->id_] = std::move(source);
  return stream;
}

void OutputCapture::Loop() {
  std::vector<epoll_event> events(64);
  while (true) {
    absl::Duration timeout = absl::InfiniteDuration();
    std::vector<int64_t> finished;
    {
      absl::MutexLock lock(&mu_);
      if (ending_) return;
      const absl::Time now = absl::Now();
      for (const auto& [id, source] : sources_) {
        if (source->done == nullptr) continue;
        if (source->ended || source->deadline <= now) {
          finished.push_back(id);
        } else {
          timeout = std::min(timeout, source->deadline - now);
        }
      }
    }
    for (const int64_t id : finished) {
      std::unique_ptr<Source> source;
      {
        absl::MutexLock lock(&mu_);
        const auto it = sources_.find(id);
        source = std::move(it->second);
        sources_.erase(it);
      }
      if (!source->ended) ReadRest(source.get());
      if (!source->ended) Close(source.get());
      source->done();
    }
    const int wait_ms =
        timeout == absl::InfiniteDuration()
            ? -1
            : static_cast<int>(absl::ToInt64Milliseconds(timeout)) + 1;
    const int n = epoll_wait(epoll_.get(), events.data(),
                             static_cast<int>(events.size()), wait_ms);
    if (n < 0 && errno != EINTR) PLOG(FATAL) << "epoll";
    for (int i = 0; i < n; ++i) {
      const int64_t id = static_cast<int64_t>(events[i].data.u64);
      if (id == kWakeId) {
        uint64_t count;
        if (read(wake_.get(), &count, sizeof(count)) < 0 && errno != EAGAIN) {
          PLOG(ERROR) << "eventfd";
        }
        continue;
      }
      Source* source = nullptr;
      {
        absl::MutexLock lock(&mu_);
        const auto it = sources_.find(id);
        if (it != sources_.end()) source = it->second.get();
      }
      if (source != nullptr) Read(source);
    }
  }
}

void OutputCapture::Read(Source* source) {
  char buffer[kReadBytes];
  for (int i = 0; i < kReadsPerTurn; ++i) {
    const ssize_t n = read(source->read_end.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return Close(source);
    Take(source, absl::string_view(buffer, static_cast<size_t>(n)));
  }
}

void OutputCapture::ReadRest(Source* source) {
  // As much as fits into the pipe: what comes while it is read is not of the
  // process that has ended.
  int64_t left = fcntl(source->read_end.get(), F_GETPIPE_SZ);
  char buffer[kReadBytes];
  while (left > 0) {
    const ssize_t n = read(source->read_end.get(), buffer,
                           std::min(sizeof(buffer), static_cast<size_t>(left)));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    Take(source, absl::string_view(buffer, static_cast<size_t>(n)));
    left -= n;
  }
}

void OutputCapture::TellLost(Source* source) {
  if (source->file.lost_bytes() == source->told_lost_bytes) return;
  source->told_lost_bytes = source->file.lost_bytes();
  SendLines(source,
            absl::StrCat("[miniray: in its log: ",
                         LostOutputOf(source->file.path()).ToString(), "]\n"),
            false);
}

void OutputCapture::Close(Source* source) {
  TellLost(source);
  if (!source->partial.empty() || source->dropped_lines > 0) {
    SendLines(source, std::exchange(source->partial, ""), true);
  }
  source->file.Finish();
  source->read_end.reset();  // Leaves the epoll set by itself.
  source->ended = true;
}

void OutputCapture::Take(Source* source, absl::string_view text) {
  source->file.Append(text);
  if (source->origin.job_id().empty()) return;
  // That it begins; the sum follows at the end.
  if (source->told_lost_bytes == 0) TellLost(source);
  const size_t last = text.rfind('\n');
  if (last == absl::string_view::npos) {
    source->partial.append(text.data(), text.size());
    if (source->partial.size() < kMaxLineBytes) return;
    return SendLines(source, std::exchange(source->partial, ""), false);
  }
  const absl::string_view lines = text.substr(0, last + 1);
  if (source->partial.empty()) {
    SendLines(source, lines, false);
  } else {
    SendLines(source, absl::StrCat(source->partial, lines), false);
  }
  source->partial = std::string(text.substr(last + 1));
}

void OutputCapture::SendLines(Source* source, absl::string_view lines,
                              bool last) {
  if (source->origin.job_id().empty()) return;
  v1::ProcessOutput output;
  {
    absl::MutexLock lock(&mu_);
    output = source->origin;
  }
  v1::ProcessOutput count = output;
  output.set_text(std::string(lines));
  output.set_dropped_lines(source->dropped_lines);
  if (options_.sink(std::move(output), false)) {
    source->dropped_lines = 0;
    return;
  }
  if (!lines.empty()) {
    source->dropped_lines +=
        std::max<int64_t>(1, std::count(lines.begin(), lines.end(), '\n'));
  }
  if (!last) return;
  count.set_dropped_lines(source->dropped_lines);
  options_.sink(std::move(count), true);
}

}  // namespace miniray
