#include "train/collective/process_group.h"

#include <arpa/inet.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "c10/util/Exception.h"
#include "runtime/base/status_macros.h"
#include "torch/csrc/distributed/c10d/HashStore.hpp"
#include "torch/csrc/distributed/c10d/PrefixStore.hpp"
#include "train/collective/abortable_device.h"
#include "train/collective/collective_error.h"
#include "train/collective/gloo_backend.h"
#include "train/collective/gpu_backend.h"
#include "train/collective/runtime_store.h"

namespace miniray::train {
namespace {

// Waits for other ranks over stores that cannot be told to stop are cut into
// pieces of this length.
constexpr absl::Duration kStoreWait = absl::Milliseconds(200);

// Gloo writes to sockets whose other end may just have died.
void IgnoreBrokenPipes() {
  struct sigaction action;
  if (sigaction(SIGPIPE, nullptr, &action) == 0 &&
      action.sa_handler == SIG_DFL) {
    signal(SIGPIPE, SIG_IGN);
  }
}

bool IsIpAddress(const std::string& text) {
  in6_addr bytes;
  return inet_pton(AF_INET, text.c_str(), &bytes) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &bytes) == 1;
}

absl::Status Check(const ProcessGroup::Options& options) {
  auto finite = [](absl::Duration d) {
    return d >= absl::Milliseconds(1) && d <= absl::Hours(24 * 365);
  };
  if (options.world_size < 1 || options.rank < 0 ||
      options.rank >= options.world_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", options.rank, " of ", options.world_size, " is none"));
  }
  if (!finite(options.timeout) || !finite(options.start_timeout)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "timeout and start_timeout must be finite, from 1 ms to a year; they "
        "are ",
        absl::FormatDuration(options.timeout), " and ",
        absl::FormatDuration(options.start_timeout)));
  }
  if (!IsIpAddress(options.address)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "address '", options.address,
        "' is no IP address; CollectiveAddress() gives that of this process"));
  }
  if (options.num_threads < 1) {
    return absl::InvalidArgumentError("num_threads must be at least 1");
  }
  return absl::OkStatus();
}

// LibTorch's store, as Gloo asks for one.
class GlooStore : public gloo::rendezvous::Store {
 public:
  explicit GlooStore(c10d::Store& store) : store_(store) {}

  void set(const std::string& key, const std::vector<char>& value) override {
    store_.set(key, std::vector<uint8_t>(value.begin(), value.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::vector<uint8_t> value = store_.get(key);
    return std::vector<char>(value.begin(), value.end());
  }
  void wait(const std::vector<std::string>& keys) override {
    store_.wait(keys);
  }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    store_.wait(keys, timeout);
  }

 private:
  c10d::Store& store_;
};

// What an exception of Gloo, NCCL or a store says, as a status.
absl::Status StatusOf(const std::exception& error) {
  if (const auto* store = dynamic_cast<const StoreError*>(&error)) {
    return store->status();
  }
  if (const auto* timeout = dynamic_cast<const StoreTimeout*>(&error)) {
    return timeout->status();
  }
  if (const auto* own = dynamic_cast<const CollectiveError*>(&error)) {
    return own->status();
  }
  std::string text = error.what();
  if (const auto* c10 = dynamic_cast<const c10::Error*>(&error)) {
    text = c10->what_without_backtrace();
  }
  // "Timed out waiting 1000ms for recv operation to complete", "Application
  // timeout caused pair closure", "Connect timeout", "Wait timeout".
  if (absl::StrContains(text, "imed out") ||
      absl::StrContains(text, "imeout")) {
    return absl::DeadlineExceededError(
        absl::StrCat("a rank takes no part: ", text));
  }
  if (dynamic_cast<const gloo::IoException*>(&error) != nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "a connection to another rank broke; it died or gave up: ", text));
  }
  return absl::InternalError(text);
}

std::string RankKey(int rank) { return absl::StrCat("rank/", rank); }

}  // namespace

struct ProcessGroup::State {
  const Options options;

  mutable absl::Mutex mu;
  absl::Status status ABSL_GUARDED_BY(mu);  // The first error.
  bool begun ABSL_GUARDED_BY(mu) = false;   // Start was called.
  c10::intrusive_ptr<RuntimeStore> store ABSL_GUARDED_BY(mu);
  std::shared_ptr<internal::AbortableDevice> device ABSL_GUARDED_BY(mu);
  // Set once, when all ranks are connected.
  std::unique_ptr<internal::GlooBackend> gloo ABSL_GUARDED_BY(mu);
  // Set once, with the first use of a GPU. Null: Gloo does that.
  std::unique_ptr<internal::Backend> nccl ABSL_GUARDED_BY(mu);
  bool gpus_are_connected ABSL_GUARDED_BY(mu) = false;

  absl::Status Begin() ABSL_LOCKS_EXCLUDED(mu);
  absl::Status Start(c10::intrusive_ptr<c10d::Store> store)
      ABSL_LOCKS_EXCLUDED(mu);
  // Returns when all ranks have shown themselves in the store.
  absl::Status Gather(c10d::Store& store, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu);
  absl::Status Connect(c10::intrusive_ptr<c10d::Store> store,
                       absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu);
  absl::Status MissingRanks(c10d::Store& store) const;

  void Abort(const absl::Status& given) ABSL_LOCKS_EXCLUDED(mu);
  // The group's first error: `why`, unless there is one already.
  absl::Status Fail(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu) {
    Abort(why);
    absl::MutexLock lock(&mu);
    return status;
  }
  absl::Status CurrentStatus() const ABSL_LOCKS_EXCLUDED(mu) {
    absl::MutexLock lock(&mu);
    return status;
  }
};

absl::Status ProcessGroup::State::Begin() {
  MR_RETURN_IF_ERROR(Check(options));
  absl::MutexLock lock(&mu);
  MR_RETURN_IF_ERROR(status);
  if (begun) {
    return absl::FailedPreconditionError(
        "a ProcessGroup is started once; make a new one");
  }
  begun = true;
  return absl::OkStatus();
}

absl::Status ProcessGroup::State::Start(c10::intrusive_ptr<c10d::Store> store) {
  const std::string what = absl::StrCat("rank ", options.rank, " of ",
                                        options.world_size, ": start");
  const absl::Time deadline = absl::Now() + options.start_timeout;
  absl::Status done;
  try {
    auto named =
        c10::make_intrusive<c10d::PrefixStore>(options.name, std::move(store));
    done = Gather(*named, deadline);
    if (done.ok()) done = Connect(std::move(named), deadline);
  } catch (const std::exception& error) {
    done = StatusOf(error);
  }
  if (done.ok()) return done;
  return Annotate(Fail(done), what);
}

absl::Status ProcessGroup::State::Gather(c10d::Store& store,
                                         absl::Time deadline) {
  const auto& address = options.address;
  store.set(RankKey(options.rank),
            std::vector<uint8_t>(address.begin(), address.end()));
  std::vector<std::string> keys;
  for (int i = 0; i < options.world_size; ++i) keys.push_back(RankKey(i));
  bool own_store = false;
  {
    absl::MutexLock lock(&mu);
    own_store = this->store != nullptr;
  }
  for (;;) {
    MR_RETURN_IF_ERROR(CurrentStatus());
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return MissingRanks(store);
    const absl::Duration piece = own_store ? left : std::min(left, kStoreWait);
    try {
      store.wait(keys, absl::ToChronoMilliseconds(
                           std::max(piece, absl::Milliseconds(1))));
      return absl::OkStatus();
    } catch (const std::exception& error) {
      if (!absl::IsDeadlineExceeded(StatusOf(error))) throw;
    }
  }
}

absl::Status ProcessGroup::State::MissingRanks(c10d::Store& store) const {
  std::vector<std::string> missing;
  for (int i = 0; i < options.world_size; ++i) {
    if (!store.check({RankKey(i)})) missing.push_back(absl::StrCat(i));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("after ", absl::FormatDuration(options.start_timeout),
                   " these ranks are missing: ", absl::StrJoin(missing, ", ")));
}

absl::Status ProcessGroup::State::Connect(c10::intrusive_ptr<c10d::Store> store,
                                          absl::Time deadline) {
  IgnoreBrokenPipes();
  auto new_device =
      std::make_shared<internal::AbortableDevice>(options.address);
  {
    absl::MutexLock lock(&mu);
    MR_RETURN_IF_ERROR(status);
    device = new_device;
  }
  // Gloo waits five times `timeout` for a connection.
  absl::Notification connected;
  std::thread watchdog([this, &connected, deadline] {
    if (connected.WaitForNotificationWithDeadline(deadline)) return;
    Abort(absl::DeadlineExceededError(absl::StrCat(
        "after ", absl::FormatDuration(options.start_timeout),
        " not all ranks are connected: each must be able to reach the "
        "addresses of the others at any port; this rank's is ",
        options.address)));
  });
  absl::Status done;
  std::unique_ptr<internal::GlooBackend> made;
  try {
    GlooStore gloo_store(*store);
    made = std::make_unique<internal::GlooBackend>(
        internal::GlooBackend::Options{.rank = options.rank,
                                       .world_size = options.world_size,
                                       .timeout = options.timeout,
                                       .num_threads = options.num_threads},
        gloo_store, new_device);
  } catch (const std::exception& error) {
    done = StatusOf(error);
  }
  connected.Notify();
  watchdog.join();
  MR_RETURN_IF_ERROR(done);
  absl::MutexLock lock(&mu);
  MR_RETURN_IF_ERROR(status);
  gloo = std::move(made);
  return absl::OkStatus();
}

void ProcessGroup::State::Abort(const absl::Status& given) {
  const absl::Status why =
      given.ok() ? absl::AbortedError("aborted without a cause") : given;
  c10::intrusive_ptr<RuntimeStore> aborted_store;
  std::shared_ptr<internal::AbortableDevice> aborted_device;
  internal::Backend* aborted_nccl = nullptr;
  {
    absl::MutexLock lock(&mu);
    if (!status.ok()) return;
    status = why;
    aborted_store = store;
    aborted_device = device;
    aborted_nccl = nccl.get();
  }
  if (aborted_store != nullptr) aborted_store->Abort(why);
  if (aborted_device != nullptr) aborted_device->Abort(why.ToString());
  if (aborted_nccl != nullptr) aborted_nccl->Abort(why.ToString());
}

ProcessGroup::ProcessGroup(Options options)
    : state_(new State{.options = std::move(options)}) {}

ProcessGroup::~ProcessGroup() = default;

absl::Status ProcessGroup::Start(const ActorHandle<RendezvousStore>& store) {
  MR_RETURN_IF_ERROR(state_->Begin());
  auto runtime_store = c10::make_intrusive<RuntimeStore>(
      store, absl::ToChronoMilliseconds(state_->options.start_timeout));
  {
    absl::MutexLock lock(&state_->mu);
    MR_RETURN_IF_ERROR(state_->status);
    state_->store = runtime_store;
  }
  return state_->Start(std::move(runtime_store));
}

absl::Status ProcessGroup::Start(c10d::Store& store) {
  MR_RETURN_IF_ERROR(state_->Begin());
  return state_->Start(
      c10::intrusive_ptr<c10d::Store>::unsafe_reclaim_from_nonowning(&store));
}

absl::Status ProcessGroup::StartAlone() {
  if (state_->options.world_size != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a world of ", state_->options.world_size, " needs a store"));
  }
  MR_RETURN_IF_ERROR(state_->Begin());
  return state_->Start(c10::make_intrusive<c10d::HashStore>());
}

void ProcessGroup::Abort(absl::Status status) { state_->Abort(status); }

absl::Status ProcessGroup::status() const { return state_->CurrentStatus(); }

int ProcessGroup::waits() const {
  absl::MutexLock lock(&state_->mu);
  return state_->device == nullptr ? 0 : state_->device->waits();
}

int ProcessGroup::rank() const { return state_->options.rank; }
int ProcessGroup::world_size() const { return state_->options.world_size; }
const ProcessGroup::Options& ProcessGroup::options() const {
  return state_->options;
}

absl::StatusOr<internal::Backend*> ProcessGroup::BackendFor(
    c10::Device device) {
  {
    const absl::MutexLock lock(&state_->mu);
    MR_RETURN_IF_ERROR(state_->status);
    if (state_->gloo == nullptr) {
      return absl::FailedPreconditionError("the process group is not started");
    }
    if (device.is_cpu()) return state_->gloo.get();
    if (state_->gpus_are_connected) {
      return state_->nccl != nullptr ? state_->nccl.get() : state_->gloo.get();
    }
  }
  MR_ASSIGN_OR_RETURN(std::unique_ptr<internal::Backend> nccl,
                      internal::MakeGpuBackend(*this, device));
  const absl::MutexLock lock(&state_->mu);
  MR_RETURN_IF_ERROR(state_->status);
  state_->nccl = std::move(nccl);
  state_->gpus_are_connected = true;
  return state_->nccl != nullptr ? state_->nccl.get() : state_->gloo.get();
}

absl::Status ProcessGroup::FailureOf(absl::string_view what,
                                     const std::exception& error) {
  return Annotate(state_->Fail(StatusOf(error)),
                  absl::StrCat("rank ", rank(), ": ", what));
}

}  // namespace miniray::train
