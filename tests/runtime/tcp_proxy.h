// A TCP proxy on loopback whose link a test can cut.

#ifndef MINIRAY_TESTS_RUNTIME_TCP_PROXY_H_
#define MINIRAY_TESTS_RUNTIME_TCP_PROXY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "runtime/base/files.h"

namespace miniray {

// Thread-safe.
class TcpProxy {
 public:
  // `target`: HOST:PORT on loopback.
  explicit TcpProxy(const std::string& target);
  ~TcpProxy();

  const std::string& address() const { return address_; }

  // New connections go there.
  void SetTarget(const std::string& target);
  // New connections are closed at once.
  void Refuse(bool refuse) { refuse_ = refuse; }
  int refused() const { return refused_; }  // So many were.
  // Each new connection breaks, in both directions at once, after it has
  // carried a random number of bytes from this range; 0: never.
  void CutAfter(int64_t min_bytes, int64_t max_bytes);
  // New connections whose first bytes are these stay without an answer, and
  // nothing of them is passed on; empty: none.
  void Swallow(const std::string& first);
  // New connections whose first bytes are these break with the first bytes that
  // come from the caller once it was answered, which are lost; empty: none.
  void BreakOnceAnswered(const std::string& first);
  // While it is so, connections stay as they are and carry nothing.
  void Hold(bool hold);
  // Breaks all connections now.
  void Cut();

  int connections() const { return connections_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Link;

  void Accept();
  void Carry(const std::shared_ptr<Link>& link, int from, int to);

  std::string address_;
  ScopedFd listener_;
  std::atomic<bool> refuse_ = false;
  std::atomic<bool> ending_ = false;
  std::atomic<int> refused_ = 0;
  std::atomic<int> connections_ = 0;
  std::atomic<int64_t> bytes_ = 0;
  absl::Mutex mu_;
  int target_port_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t min_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t max_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::string swallowed_ ABSL_GUARDED_BY(mu_);
  std::string broken_ ABSL_GUARDED_BY(mu_);
  bool hold_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::shared_ptr<Link>> links_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;  // Of the acceptor, until it has ended.
  std::thread acceptor_;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_TCP_PROXY_H_
