// What a process asks the head, with the patience that a head which is killed
// and started again takes.

#ifndef MINIRAY_RUNTIME_CLIENT_HEAD_REQUESTS_H_
#define MINIRAY_RUNTIME_CLIENT_HEAD_REQUESTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "proto/head.grpc.pb.h"
#include "runtime/base/backoff.h"
#include "runtime/base/silence.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/redialler.h"

namespace miniray {
namespace internal {

class Client;

// How a connection of its own reaches a client's head, for what must not share
// the client's.
struct HeadAccess {
  std::string address;  // HOST:PORT.
  std::string token;    // May be empty.
};
HeadAccess HeadAccessOf(const Client& client);

// The pauses between tries; they grow.
inline constexpr absl::Duration kFirstHeadPause = absl::Milliseconds(100);
inline constexpr absl::Duration kMaxHeadPause = absl::Seconds(1);

// Thread-safe, but for SetPeriods.
class HeadRequests {
 public:
  // How long a request waits.
  struct Patience {
    absl::Duration away;                       // While nobody is there.
    absl::Duration answer = SilenceTimeout();  // For one who is, at least.
  };

  // `address`: HOST:PORT.
  HeadRequests(std::string address, std::string token);
  // Close and AwaitLookUps come first. May run in a gRPC callback.
  ~HeadRequests();

  // Before the first request: how long the head may be away before one fails,
  // and the longest pause between two tries to connect (zero: the default).
  void SetPeriods(absl::Duration reconnect_timeout, absl::Duration max_pause);

  v1::Head::Stub* stub() const { return stub_.get(); }
  Redialler* redialler() { return &redialler_; }
  const std::string& address() const { return address_; }
  const std::string& token() const { return token_; }
  absl::Duration reconnect_timeout() const { return reconnect_timeout_; }

  // `limit`, or as long as the head may be away if that is less.
  absl::Duration AtMost(absl::Duration limit) const;
  // Of who has the time `left`, for a question that the head may keep for
  // `wait_ms` of it before it answers.
  Patience Within(absl::Duration left, int64_t wait_ms) const;
  // Whether it was the time of the asker that ended, and not what a head may be
  // away.
  bool IsTooLate(const absl::Status& status, absl::Duration left) const;

  template <class Request, class Response>
  absl::Status Ask(grpc::Status (v1::Head::Stub::*method)(grpc::ClientContext*,
                                                          const Request&,
                                                          Response*),
                   const Request& request, Response* response) {
    return Ask(method, request, response, {.away = reconnect_timeout_});
  }

  // Asks the head, and again while it is away. All that it is asked may be sent
  // twice (proto/head.proto), so a head that is killed and started again in the
  // middle of a request is not noticed. Errors: UNAVAILABLE, it stayed away;
  // CANCELLED, closed; and what the head answers.
  template <class Request, class Response>
  absl::Status Ask(grpc::Status (v1::Head::Stub::*method)(grpc::ClientContext*,
                                                          const Request&,
                                                          Response*),
                   const Request& request, Response* response,
                   const Patience& patience) {
    const absl::Time begin = absl::Now();
    const absl::Time deadline = begin + patience.away;
    Backoff backoff(kFirstHeadPause, kMaxHeadPause);
    while (true) {
      grpc::ClientContext context;
      Prepare(&context, patience, begin, deadline);
      const grpc::Status status =
          (stub_.get()->*method)(&context, request, response);
      bool again = false;
      if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
        MR_ASSIGN_OR_RETURN(again, Pause(&backoff, deadline));
      }
      if (!again) return ToStatus(status, begin);
    }
  }

  // Before another try. False: there is none before `deadline`. Errors:
  // CANCELLED, closed.
  absl::StatusOr<bool> Pause(Backoff* backoff, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Asks where an actor is; does not block. `done` is called once, on a thread
  // of gRPC's, and this object may be gone when it returns.
  void LookUp(v1::GetActorRequest request,
              std::function<void(absl::StatusOr<v1::ActorInfo>)> done)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Ends pauses and lookups, also those to come.
  void Close() ABSL_LOCKS_EXCLUDED(mu_);
  // Until the last lookup is about to call its `done`.
  void AwaitLookUps() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Waits until the head is there, or there is no time left.
  void Prepare(grpc::ClientContext* context, const Patience& patience,
               absl::Time begin, absl::Time deadline);
  // Whether there is a connection to the head; waits for one until `deadline`,
  // or until Close.
  bool AwaitHead(absl::Time begin, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  void TellSilence(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // What a request came to; silence is told as such, with what to do.
  absl::Status ToStatus(const grpc::Status& status, absl::Time begin) const;
  absl::Status ToStatus(const grpc::Status& status) const;

  const std::string address_;
  const std::string token_;
  const std::shared_ptr<grpc::Channel> channel_;
  Redialler redialler_;
  const std::unique_ptr<v1::Head::Stub> stub_;
  absl::Duration reconnect_timeout_ = absl::Seconds(60);

  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time next_telling_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::vector<grpc::ClientContext*> lookups_ ABSL_GUARDED_BY(mu_);
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_HEAD_REQUESTS_H_
