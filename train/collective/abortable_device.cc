#include "train/collective/abortable_device.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "gloo/common/error.h"
#include "gloo/transport/pair.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/unbound_buffer.h"

namespace miniray::train::internal {

// Shared by the device and all that it made, which may outlive it.
struct AbortableDevice::Switch {
  std::atomic<int> waits = 0;
  absl::Mutex mu;
  std::optional<std::string> aborted ABSL_GUARDED_BY(mu);
  std::set<AbortableBuffer*> buffers ABSL_GUARDED_BY(mu);
  std::vector<std::weak_ptr<AbortableContext>> contexts ABSL_GUARDED_BY(mu);

  void ThrowIfAborted() ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    ThrowIfAbortedLocked();
  }
  void ThrowIfAbortedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (aborted.has_value()) throw gloo::IoException(*aborted);
  }
};

class AbortableDevice::AbortableBuffer : public gloo::transport::UnboundBuffer {
 public:
  AbortableBuffer(std::shared_ptr<Switch> abort_switch,
                  std::unique_ptr<gloo::transport::UnboundBuffer> tcp)
      : UnboundBuffer(tcp->ptr, tcp->size),
        switch_(std::move(abort_switch)),
        tcp_(std::move(tcp)) {
    absl::MutexLock lock(&switch_->mu);
    switch_->ThrowIfAbortedLocked();
    switch_->buffers.insert(this);
  }
  ~AbortableBuffer() override {
    absl::MutexLock lock(&switch_->mu);
    switch_->buffers.erase(this);
  }

  // Wakes who waits, now or next. Called with the switch's lock held, and after
  // `aborted` is set.
  void Wake() {
    tcp_->abortWaitRecv();
    tcp_->abortWaitSend();
  }

  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override {
    const Wait wait(*switch_);
    const bool received = tcp_->waitRecv(rank, timeout);
    if (!received) switch_->ThrowIfAborted();
    return received;
  }
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override {
    const Wait wait(*switch_);
    const bool sent = tcp_->waitSend(rank, timeout);
    if (!sent) switch_->ThrowIfAborted();
    return sent;
  }
  void abortWaitRecv() override { tcp_->abortWaitRecv(); }
  void abortWaitSend() override { tcp_->abortWaitSend(); }

  void send(int rank, uint64_t slot, size_t offset, size_t nbytes) override {
    switch_->ThrowIfAborted();
    tcp_->send(rank, slot, offset, nbytes);
  }
  void recv(int rank, uint64_t slot, size_t offset, size_t nbytes) override {
    switch_->ThrowIfAborted();
    tcp_->recv(rank, slot, offset, nbytes);
  }
  void recv(std::vector<int> ranks, uint64_t slot, size_t offset,
            size_t nbytes) override {
    switch_->ThrowIfAborted();
    tcp_->recv(std::move(ranks), slot, offset, nbytes);
  }

 private:
  // Counts one while it lives; throws if the device is aborted.
  class Wait {
   public:
    explicit Wait(Switch& abort_switch) : switch_(abort_switch) {
      switch_.ThrowIfAborted();
      ++switch_.waits;
    }
    ~Wait() { --switch_.waits; }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    Switch& switch_;
  };

  const std::shared_ptr<Switch> switch_;
  const std::unique_ptr<gloo::transport::UnboundBuffer> tcp_;
};

class AbortableDevice::AbortableContext : public gloo::transport::Context {
 public:
  AbortableContext(std::shared_ptr<Switch> abort_switch,
                   std::shared_ptr<gloo::transport::Context> tcp)
      : Context(tcp->rank, tcp->size),
        switch_(std::move(abort_switch)),
        tcp_(std::move(tcp)) {}

  std::unique_ptr<gloo::transport::Pair>& getPair(int rank) override {
    switch_->ThrowIfAborted();
    return tcp_->getPair(rank);
  }

  std::unique_ptr<gloo::transport::Pair>& createPair(int rank) override {
    absl::MutexLock lock(&mu_);
    if (closed_) switch_->ThrowIfAborted();
    // setTimeout is not virtual: what Gloo said to this context.
    tcp_->setTimeout(getTimeout());
    std::unique_ptr<gloo::transport::Pair>& pair = tcp_->createPair(rank);
    pairs_.push_back(pair.get());
    return pair;
  }

  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(
      void* ptr, size_t size) override {
    return std::make_unique<AbortableBuffer>(
        switch_, tcp_->createUnboundBuffer(ptr, size));
  }

  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    absl::MutexLock lock(&mu_);
    closed_ = true;
    // The other ends see a reset connection.
    for (gloo::transport::Pair* pair : pairs_) pair->close();
  }

 private:
  const std::shared_ptr<Switch> switch_;
  const std::shared_ptr<gloo::transport::Context> tcp_;
  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  // They live as long as tcp_.
  std::vector<gloo::transport::Pair*> pairs_ ABSL_GUARDED_BY(mu_);
};

AbortableDevice::AbortableDevice(const std::string& address)
    : tcp_(gloo::transport::tcp::CreateDevice(
          gloo::transport::tcp::attr(address.c_str()))),
      switch_(std::make_shared<Switch>()) {}

void AbortableDevice::Abort(const std::string& message) {
  std::vector<std::weak_ptr<AbortableContext>> contexts;
  {
    absl::MutexLock lock(&switch_->mu);
    if (switch_->aborted.has_value()) return;
    switch_->aborted = message;
    for (AbortableBuffer* buffer : switch_->buffers) buffer->Wake();
    contexts = switch_->contexts;
  }
  for (const auto& weak : contexts) {
    const std::shared_ptr<AbortableContext> context = weak.lock();
    if (context != nullptr) context->Close();
  }
}

int AbortableDevice::waits() const { return switch_->waits; }

std::shared_ptr<gloo::transport::Context> AbortableDevice::createContext(
    int rank, int size) {
  auto context = std::make_shared<AbortableContext>(
      switch_, tcp_->createContext(rank, size));
  absl::MutexLock lock(&switch_->mu);
  switch_->ThrowIfAbortedLocked();
  switch_->contexts.push_back(context);
  return context;
}

}  // namespace miniray::train::internal
