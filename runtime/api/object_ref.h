// ObjectRef<T> names a value that may not exist yet, or lies elsewhere: the
// result of a call, or what Cluster::Put took.

#ifndef MINIRAY_RUNTIME_API_OBJECT_REF_H_
#define MINIRAY_RUNTIME_API_OBJECT_REF_H_

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/client/call_state.h"
#include "runtime/wire/adoption.h"
#include "runtime/wire/codec.h"

namespace miniray {

namespace internal {
// What ObjectRef<T>::Get returns.
template <class T>
struct GetResult {
  using type = absl::StatusOr<T>;
};
template <>
struct GetResult<void> {
  using type = absl::Status;
};

// While it lives: collects the references that this thread decodes. At its end
// their objects are held by this process, with one message to the node's store.
class ArrivedReferences {
 public:
  ArrivedReferences();
  ~ArrivedReferences() { Hold(); }
  ArrivedReferences(const ArrivedReferences&) = delete;
  ArrivedReferences& operator=(const ArrivedReferences&) = delete;

  void Add(std::shared_ptr<CallState> reference) {
    references_.push_back(std::move(reference));
  }

 private:
  void Hold();

  ArrivedReferences* const outer_;
  std::vector<std::shared_ptr<CallState>> references_;
};
}  // namespace internal

// Cheap to copy; copies name the same value. Thread-safe.
//
// It may be passed to an actor's method in place of the value: as an argument
// where the parameter is T, it is resolved before the method runs; the call is
// not sent before the value exists, and fails if it never does. A parameter of
// type ObjectRef<T> receives the reference itself, for the method to Get, or to
// pass on; that needs a value that lies where others can fetch it: from Put, or
// from a call with keep_result.
//
// What was Put, or is the result of a call with keep_result, lives as long as
// any process has an ObjectRef to it: the one that put it or made the call, and
// each that was passed a reference as such (as a parameter of type
// ObjectRef<T>, or inside of another value or a result). A process that ends,
// however it does, has none any more; a driver, once its job ends. A value also
// goes with the node that it was put on, or whose actor made it. A reference
// that arrives costs a short message to the node's store; where many arrive at
// once, one for all.
//
// Not held by a reference: what the result of a call with keep_result refers to
// in its turn, once the process that made the call has no ObjectRef to it, or
// the actor has ended; what a constructor's arguments refer to, before the
// constructor has run or when it runs again after a restart, and what a saved
// state refers to (SaveState), while no process has it. Somebody else has to
// keep an ObjectRef as long.
template <class T>
class ObjectRef {
 public:
  ObjectRef() = default;
  explicit ObjectRef(std::shared_ptr<internal::CallState> state)
      : state_(std::move(state)) {}

  // Blocks until the call is done and returns its result (a Status for void).
  // May be called again; each time decodes anew.
  //
  // Errors: what the method returned or threw (UNKNOWN for an exception, with
  // actor, method and text). UNAVAILABLE, the actor died or is being restarted:
  // the message says which actor, on which node, and why; the call may or may
  // not have run; or the value is lost with the process or node that held it.
  // NOT_FOUND, the value was freed. DEADLINE_EXCEEDED, `timeout` passed; the
  // call goes on, and Get may be called again.
  typename internal::GetResult<T>::type Get(
      absl::Duration timeout = absl::InfiniteDuration()) const& {
    return Get(timeout, /*last=*/false);
  }
  // The same, for an ObjectRef that is used no more, as in
  // `handle.Call<&A::Weights>().Get()`: spares what Get would keep to give it
  // out again.
  typename internal::GetResult<T>::type Get(
      absl::Duration timeout = absl::InfiniteDuration()) && {
    return Get(timeout, /*last=*/true);
  }

  // True if Get would not block.
  bool ready() const { return state_ != nullptr && state_->done(); }

  const std::shared_ptr<internal::CallState>& state() const { return state_; }

 private:
  typename internal::GetResult<T>::type Get(absl::Duration timeout,
                                            bool last) const {
    if (state_ == nullptr) {
      return absl::FailedPreconditionError("empty ObjectRef");
    }
    const absl::StatusOr<internal::FetchedValue> result =
        state_->WaitAndFetch(timeout, last);
    if (!result.ok()) return result.status();
    if constexpr (std::is_void_v<T>) {
      return absl::OkStatus();
    } else {
      T value{};
      // Held before the result, whose producer holds them so far, can go.
      const internal::ArrivedReferences arrived;
      const internal::AdoptionScope scope(result->own);
      MR_RETURN_IF_ERROR(Annotate(DecodeValue(result->bytes, &value),
                                  state_->description() + ": result"));
      return value;
    }
  }

  std::shared_ptr<internal::CallState> state_;
};

namespace internal {

template <class T>
struct IsObjectRef : std::false_type {};
template <class T>
struct IsObjectRef<ObjectRef<T>> : std::true_type {
  using Value = T;
};

// While it lives: collects the references that this thread encodes, so that
// they are held until the call that they are part of is done, or the result
// that they are part of has been read.
class ReferenceHolds {
 public:
  ReferenceHolds();
  ~ReferenceHolds();
  ReferenceHolds(const ReferenceHolds&) = delete;
  ReferenceHolds& operator=(const ReferenceHolds&) = delete;

  std::vector<std::shared_ptr<CallState>> calls;

 private:
  ReferenceHolds* const outer_;
};

absl::Status NotByReference(const CallState& call);
absl::Status EncodeObjectRef(const std::shared_ptr<CallState>& call,
                             WireWriter* out);
absl::Status DecodeObjectRef(const ValueView& view,
                             std::shared_ptr<CallState>* out);
// The Value that a serialized Value refers to; blocks.
absl::StatusOr<FetchedValue> ResolveReference(const absl::Cord& reference);

}  // namespace internal

template <class T>
struct Codec<ObjectRef<T>> {
  static absl::Status Encode(const ObjectRef<T>& ref, WireWriter* out) {
    return internal::EncodeObjectRef(ref.state(), out);
  }
  static absl::Status Decode(const ValueView& view, ObjectRef<T>* out) {
    std::shared_ptr<internal::CallState> call;
    MR_RETURN_IF_ERROR(internal::DecodeObjectRef(view, &call));
    *out = ObjectRef<T>(std::move(call));
    return absl::OkStatus();
  }
};

// Blocks until `num_ready` of `refs` are done or `timeout` has passed; returns
// the indices of those that are done, in ascending order. num_ready is capped
// at refs.size().
template <class T>
std::vector<size_t> Wait(const std::vector<ObjectRef<T>>& refs,
                         size_t num_ready,
                         absl::Duration timeout = absl::InfiniteDuration()) {
  std::vector<std::shared_ptr<internal::CallState>> states;
  for (const auto& ref : refs) states.push_back(ref.state());
  return internal::WaitForCalls(states, num_ready, timeout);
}

// Blocks until all are done or one has failed, and returns all results in
// order; what lies elsewhere is fetched in the same time. Errors: of the first
// failure seen; the other calls go on. DEADLINE_EXCEEDED, `timeout` passed.
template <class T>
absl::StatusOr<std::vector<T>> GetAll(
    const std::vector<ObjectRef<T>>& refs,
    absl::Duration timeout = absl::InfiniteDuration()) {
  std::vector<std::shared_ptr<internal::CallState>> states;
  for (const auto& ref : refs) states.push_back(ref.state());
  const absl::Time deadline = absl::Now() + timeout;
  MR_RETURN_IF_ERROR(internal::WaitForAllOrFailure(states, timeout));
  std::vector<T> values;
  values.reserve(refs.size());
  for (const auto& ref : refs) {
    MR_ASSIGN_OR_RETURN(T value, ref.Get(deadline - absl::Now()));
    values.push_back(std::move(value));
  }
  return values;
}

inline absl::Status GetAll(const std::vector<ObjectRef<void>>& refs,
                           absl::Duration timeout = absl::InfiniteDuration()) {
  std::vector<std::shared_ptr<internal::CallState>> states;
  for (const auto& ref : refs) states.push_back(ref.state());
  return internal::WaitForAllOrFailure(states, timeout);
}

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_API_OBJECT_REF_H_
