// cpp-httplib's server over connections that have an end (connection.h).

#ifndef MINIRAY_RUNTIME_HTTP_HTTP_SERVER_H_
#define MINIRAY_RUNTIME_HTTP_HTTP_SERVER_H_

#include <httplib.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "runtime/http/connection.h"
#include "runtime/http/tls_context.h"

namespace miniray {

// Each connection holds a thread. Where one more comes than there are, the one
// that came first of those that have not said yet what they want makes room.
// Whoever is refused before a handler is asked has a line in the log.
class HttpServer : public httplib::Server {
 public:
  static constexpr size_t kMaxConnections = 32;

  // tls: null: plain text. patience: for the handshake, and for each request.
  // what: is served, for errors and the log.
  HttpServer(TlsContext tls, absl::Duration patience,
             size_t max_connections = kMaxConnections,
             std::string what = "the dashboard");

  ~HttpServer() override { Shutdown(); }

  // Serves at `host`, an IP address, from a thread of its own. port: 0: any
  // that is free. Returns the port. Errors: UNAVAILABLE, it cannot listen there
  // (the port is in use). Once.
  absl::StatusOr<int> Listen(const std::string& host, int port);
  // Ends those that wait, lets answers go out for a second, then ends all.
  // Returns once no request is being answered. Idempotent. Call it before what
  // the handlers use goes.
  void Shutdown() ABSL_LOCKS_EXCLUDED(mu_);

  // --- For handlers, in the thread that serves the request.

  // To be called by the pre-routing handler: the request has been read.
  static void BeginAnswer();
  // There is more to read, and nobody wants it.
  static void HangUp();
  // Reads what comes behind the headers, so that the connection can be used
  // again. Returns 0, or the status that says why it could not; then the
  // connection ends with this answer.
  static int SkipBody(const httplib::Request& request, size_t max_bytes);
  // The answer is a stream: its next part has all of the time again.
  static void RenewAnswer();
  // Whether nobody waits for a further part: the client has gone, or the server
  // ends.
  static bool ClientHasLeft();
  // The request's line in the log, without its parameters, which may hold a
  // token.
  static void LogRefused(const httplib::Request& request,
                         absl::string_view why);

 private:
  class Threads;

  bool process_and_close_socket(socket_t socket) override;
  void EndConnections() ABSL_LOCKS_EXCLUDED(mu_);
  void Serve(Connection* connection);
  // Turns away as many as it takes until each that is queued has a thread.
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const TlsContext tls_;
  const absl::Duration patience_;
  const size_t max_connections_;
  const std::string what_;
  std::atomic<bool> ended_ = false;  // thread_ has, or is about to.
  std::thread thread_;

  absl::Mutex mu_;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  // Each that a thread serves, by how many were accepted before it.
  std::map<uint64_t, Connection*> connections_ ABSL_GUARDED_BY(mu_);
  size_t queued_ ABSL_GUARDED_BY(mu_) = 0;  // That have no thread yet.
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HTTP_HTTP_SERVER_H_
