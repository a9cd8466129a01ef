// Reads the logs of a node for whoever asks the head for them.

#ifndef MINIRAY_RUNTIME_WORKER_LOG_SERVER_H_
#define MINIRAY_RUNTIME_WORKER_LOG_SERVER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/head.pb.h"
#include "runtime/worker/log_file.h"

namespace miniray {

// Thread-safe. One thread serves all readers; each gets as much as it has
// granted, so that none holds up another or fills a queue.
class LogServer {
 public:
  struct Log {
    // Of one process after the other, by incarnation; only the last one may
    // still be written.
    std::map<int, std::string> paths;
    // Whether more may be written, by a further process as well. Called from
    // the server's thread.
    std::function<bool()> lives;
  };
  struct Callbacks {
    // Which log a request is about; asked again where it may have grown by
    // further processes. Called from the server's thread. Errors: any, for who
    // asked.
    std::function<absl::StatusOr<Log>(const v1::ReadNodeLog&)> find;
    // Sends to the head; false, and nothing sent, where there is no room. A
    // chunk that is the last must find room. Must not block, nor call this
    // object.
    std::function<bool(v1::LogChunk)> send;
  };

  explicit LogServer(Callbacks callbacks);
  ~LogServer();

  void Read(const v1::ReadNodeLog& request);
  void Grant(const v1::GrantNodeLog& grant);
  // Once these two have returned, nothing is sent to those readers any more.
  void End(uint64_t request_id);
  // The stream to the head broke: nobody reads any more, and the next may use
  // the same numbers.
  void EndAll();

 private:
  struct Reading {
    v1::ReadNodeLog request;
    int64_t stream = 0;  // Of streams_, on which it was asked for.
    Log log;
    int next = 0;  // The incarnation to open next, or a later one.
    std::optional<LogReader> reader;  // Of the one before.
    std::string path;                 // Of its log.
    int64_t told_lost_bytes = 0;      // Of those that the disk did not take.
    absl::Time next_look = absl::InfinitePast();
    int64_t skip = 0;
    std::string unsent;  // Read already.
    int64_t lost = 0;    // Bytes that stood before it and are gone.
    bool found = false;
    bool idle = false;  // At the present end of a log that lives.
  };

  void Loop();
  // Sends what there is; false once the reading is over. Without the lock.
  bool Serve(Reading* reading, int64_t* window);
  // Opens the log of the next process; false: there is none yet. Errors:
  // NOT_FOUND, its file is not there (yet).
  absl::StatusOr<bool> OpenNext(Reading* reading);
  // At the end of what is there: tells what the disk did not take, and of which
  // the log says nothing. False: there is no room for it now.
  bool TellLost(Reading* reading, bool complete);
  // Looks for logs of further processes.
  void LookAgain(Reading* reading);
  bool Finish(const Reading& reading, const absl::Status& status);
  // As of the callback. True, and nothing sent, if the reader has left.
  bool Send(const Reading& reading, v1::LogChunk chunk);
  bool HasLeft(const Reading& reading) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Callbacks callbacks_;

  absl::Mutex mu_;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  bool news_ ABSL_GUARDED_BY(mu_) = false;    // Something to look at at once.
  int64_t streams_ ABSL_GUARDED_BY(mu_) = 0;  // That broke so far.
  std::deque<v1::ReadNodeLog> requests_ ABSL_GUARDED_BY(mu_);
  // Bytes that may be sent, of every reading that goes on.
  std::map<uint64_t, int64_t> windows_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_LOG_SERVER_H_
