// Reads what actor processes and drivers of jobs print: one thread for all of
// them, which never waits for anything but their pipes. Everything goes into
// files (log_file.h) and, line by line, to a sink.

#ifndef MINIRAY_RUNTIME_WORKER_OUTPUT_CAPTURE_H_
#define MINIRAY_RUNTIME_WORKER_OUTPUT_CAPTURE_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/head.pb.h"
#include "runtime/base/files.h"
#include "runtime/worker/log_file.h"

namespace miniray {

// Thread-safe.
class OutputCapture {
 public:
  struct Options {
    LogFile::Options file;
    // Takes lines on their way to the head; false: it has no room, and they are
    // counted as dropped. It makes room where it must: the last word of a
    // process, a count. Called from the capture's thread; must not block.
    std::function<bool(v1::ProcessOutput, bool must)> sink;
    // How long the pipe of a process that has ended is read while something
    // else still holds it open.
    absl::Duration drain_timeout = absl::Seconds(1);
  };

  // The output of one process: a pipe, and where it goes. Thread-safe.
  class Stream {
   public:
    ~Stream();
    // What becomes the process's stdout and stderr. REQUIRES: not released.
    int write_fd() const ABSL_LOCKS_EXCLUDED(end_mu_) {
      absl::MutexLock lock(&end_mu_);
      return write_end_.get();
    }
    // Once the process has it.
    void ReleaseWriteEnd() ABSL_LOCKS_EXCLUDED(end_mu_) {
      absl::MutexLock lock(&end_mu_);
      write_end_.reset();
    }
    void set_pid(pid_t pid);
    const std::string& path() const { return path_; }
    // The process has ended: reads what is left, then calls `done`, from the
    // capture's thread. Call it once.
    void Finish(std::function<void()> done);

   private:
    friend class OutputCapture;
    Stream() = default;

    OutputCapture* capture_ = nullptr;
    int64_t id_ = 0;
    std::string path_;
    bool finished_ = false;
    mutable absl::Mutex end_mu_;
    ScopedFd write_end_ ABSL_GUARDED_BY(end_mu_);
  };

  // Errors: those of the system.
  static absl::StatusOr<std::unique_ptr<OutputCapture>> Create(Options options);
  // REQUIRES: every stream is finished, or nobody waits for it.
  ~OutputCapture();

  // Makes a pipe and a log file at `path`. `origin` says whose output it is;
  // with an empty job_id nothing goes to the sink. Errors: those of the system.
  absl::StatusOr<std::shared_ptr<Stream>> Open(const std::string& path,
                                               v1::ProcessOutput origin);

 private:
  struct Source {
    ScopedFd read_end;
    LogFile file;
    v1::ProcessOutput origin;  // `pid` guarded by mu_ until Finish.
    std::string partial;       // A line that is not complete yet.
    int64_t dropped_lines = 0;
    int64_t told_lost_bytes = 0;  // Of those that its file misses.
    std::function<void()> done;   // Once it is to finish.
    absl::Time deadline = absl::InfiniteFuture();
    bool ended = false;  // End of file.
  };

  explicit OutputCapture(Options options) : options_(std::move(options)) {}
  void Loop();
  // Reads what there is, a bounded amount.
  void Read(Source* source);
  // Reads what is in the pipe now, however much somebody else writes.
  void ReadRest(Source* source);
  void Take(Source* source, absl::string_view text);
  void SendLines(Source* source, absl::string_view lines, bool last);
  // Says to the sink what the disk did not take of the file.
  void TellLost(Source* source);
  // Nothing comes any more.
  void Close(Source* source);
  void Wake();

  const Options options_;
  ScopedFd epoll_;
  ScopedFd wake_;  // eventfd

  absl::Mutex mu_;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  int64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  // Entries are erased by the loop's thread alone, which reads their other
  // fields without the lock.
  std::map<int64_t, std::unique_ptr<Source>> sources_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_OUTPUT_CAPTURE_H_
