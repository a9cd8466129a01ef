// Makes ThreadSanitizer understand gRPC's hand-overs between threads (bazel
// test --config=tsan); tsan_abseil.cc says why and how.
//
// An operation is announced with a tag by the thread that starts it, ends in
// one of gRPC's threads, and is handed to a callback there or to whoever waits
// on the completion queue. What happened before the start is visible after.

#include <dlfcn.h>
#include <grpc/grpc.h>
#include <sanitizer/tsan_interface.h>
#include <stdio.h>
#include <stdlib.h>

#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "grpcpp/support/server_callback.h"

namespace {

template <typename Function>
Function Original(const char* symbol) {
  void* const found = dlsym(RTLD_NEXT, symbol);
  if (found == nullptr) {
    fprintf(stderr, "tsan_grpc.cc: this gRPC has no symbol %s\n", symbol);
    abort();
  }
  return reinterpret_cast<Function>(found);
}

}  // namespace

// gRPC's own, from src/core/lib/surface/completion_queue.h of version 1.51.
struct grpc_cq_completion;
using DoneFunction = void (*)(void*, grpc_cq_completion*);

bool grpc_cq_begin_op(grpc_completion_queue* queue, void* tag) {
  static const auto original = Original<decltype(&grpc_cq_begin_op)>(
      "_Z16grpc_cq_begin_opP21grpc_completion_queuePv");
  if (tag != nullptr) __tsan_release(tag);
  return original(queue, tag);
}

void grpc_cq_end_op(grpc_completion_queue* queue, void* tag, absl::Status error,
                    DoneFunction done, void* done_arg,
                    grpc_cq_completion* storage, bool internal) {
  static const auto original = Original<decltype(&grpc_cq_end_op)>(
      "_Z14grpc_cq_end_opP21grpc_completion_queuePvN4absl7debian36StatusE"
      "PFvS1_P18grpc_cq_completionES1_S6_b");
  if (tag != nullptr) {
    __tsan_acquire(tag);
    __tsan_release(tag);
  }
  original(queue, tag, std::move(error), done, done_arg, storage, internal);
}

extern "C" grpc_event grpc_completion_queue_next(grpc_completion_queue* queue,
                                                 gpr_timespec deadline,
                                                 void* reserved) {
  static const auto original = Original<decltype(&grpc_completion_queue_next)>(
      "grpc_completion_queue_next");
  const grpc_event event = original(queue, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

extern "C" grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue,
                                                  void* tag,
                                                  gpr_timespec deadline,
                                                  void* reserved) {
  static const auto original = Original<decltype(&grpc_completion_queue_pluck)>(
      "grpc_completion_queue_pluck");
  const grpc_event event = original(queue, tag, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(tag);
  return event;
}

// A server's reactor gets OnCancel and OnDone from whoever is the last to lower
// a count, in a thread of gRPC's executor. The count is lowered in code that
// ThreadSanitizer sees and in code that it does not; the executor it never
// sees. These do what the originals do (src/cpp/server/server_callback.cc), in
// threads of our own.
namespace grpc {
namespace internal {

void ServerCallbackCall::ScheduleOnDone(bool inline_ondone) {
  __tsan_acquire(&callbacks_outstanding_);
  if (inline_ondone) return CallOnDone();
  std::thread([this] { CallOnDone(); }).detach();
}

void ServerCallbackCall::CallOnCancel(ServerReactor* reactor) {
  __tsan_acquire(&on_cancel_conditions_remaining_);
  if (reactor->InternalInlineable()) return reactor->OnCancel();
  Ref();
  std::thread([this, reactor] {
    reactor->OnCancel();
    MaybeDone();
  }).detach();
}

}  // namespace internal
}  // namespace grpc
