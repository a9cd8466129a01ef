// One connection to the dashboard, in plain text or in TLS, as cpp-httplib
// reads and writes it. Unlike cpp-httplib's own it has an end: whoever sends
// byte after byte, and never the whole, is given up.

#ifndef MINIRAY_RUNTIME_HTTP_CONNECTION_H_
#define MINIRAY_RUNTIME_HTTP_CONNECTION_H_

#include <httplib.h>
#include <openssl/ssl.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"

namespace miniray {

// What a request may have in all.
inline constexpr size_t kMaxRequestBytes = 128 << 10;
// How long an answer may take to be read by the client.
inline constexpr absl::Duration kAnswerTime = absl::Seconds(60);

// Belongs to the thread that serves it, but for what is marked.
class Connection : public httplib::Stream {
 public:
  // tls: null: plain text. patience: for the handshake, and for each request.
  Connection(ScopedFd fd, SSL_CTX* tls, absl::Duration patience);
  ~Connection() override;

  // Does nothing in plain text. False: it failed.
  bool Handshake();

  // Begins another request, and waits for its first byte. False: none comes
  // within `idle`.
  bool AwaitRequest(absl::Duration idle);

  // The request is there; from now on the time runs for the answer.
  void BeginAnswer();
  // The answer is a stream: its next part has all of the time again.
  void RenewAnswer() { deadline_ = absl::Now() + kAnswerTime; }
  // Whether the other end has closed, or EndReading was called: nobody waits
  // for a further part.
  bool HasLeft() const;

  // Notes why the client is refused; the first reason counts.
  void Fail(absl::string_view why);
  // Why the client was refused; empty: it was not.
  const std::string& failure() const { return failure_; }
  bool timed_out() const { return absl::Now() >= deadline_; }

  // The answer of this request is the last.
  void HangUp() { hang_up_ = true; }
  // Whether there may be another request.
  bool open() const { return failure_.empty() && !hang_up_; }

  const std::string& peer() const { return peer_; }

  // Whether it is still to say what it wants. Any thread.
  bool waiting() const { return waiting_; }
  // Ends reading; an answer is still written. Any thread.
  void EndReading();
  // As EndReading, in favour of others. Any thread.
  void TurnAway();
  bool turned_away() const { return turned_away_; }
  // Ends all. Any thread.
  void Cut();

  // httplib::Stream.
  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return fd_.get(); }

 private:
  struct FreeSsl {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  // Waits for poll's `events`, until the deadline.
  bool Wait(short events) const;
  // Waits for what OpenSSL asks for after `result`; false: it is over.
  bool WaitForTls(int result);
  // More bytes into the buffer. 0: the other end has closed, -1: it failed.
  ssize_t Receive();
  std::string WhyNoHandshake() const;

  const ScopedFd fd_;
  const std::string peer_;  // "ADDRESS:PORT"
  const absl::Duration patience_;
  std::unique_ptr<SSL, FreeSsl> ssl_;
  absl::Time deadline_;
  size_t request_bytes_ = 0;  // Of this request, so far.
  std::array<char, 4096> buffer_;
  size_t begin_ = 0, end_ = 0;  // Of what the buffer holds.
  std::string failure_;
  bool hang_up_ = false;
  std::atomic<bool> waiting_ = true;
  std::atomic<bool> turned_away_ = false;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HTTP_CONNECTION_H_
