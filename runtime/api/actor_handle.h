// ActorHandle<T>: the copyable address of an actor of class T.

#ifndef MINIRAY_RUNTIME_API_ACTOR_HANDLE_H_
#define MINIRAY_RUNTIME_API_ACTOR_HANDLE_H_

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/api/actor_macro.h"
#include "runtime/api/object_ref.h"
#include "runtime/client/client.h"
#include "runtime/wire/codec.h"

namespace miniray {

namespace internal {

// See ArgumentFor, for all of them.
template <class Parameters, class... Args>
struct ArgumentsFor;
template <class... Parameters, class... Args>
struct ArgumentsFor<std::tuple<Parameters...>, Args...> {
  using type = std::tuple<typename ArgumentFor<Parameters, Args>::type...>;
  static constexpr bool Fit() {
    return (ArgumentFor<Parameters, Args>::Fits() && ...);
  }
};

// What an argument stands for where the parameter's type is not known.
template <class Arg>
struct ValueOfArgument {
  using type = Arg;
};
template <class T>
struct ValueOfArgument<ObjectRef<T>> {
  using type = T;
};
template <class Arg>
using ValueOf = typename ValueOfArgument<std::decay_t<Arg>>::type;

}  // namespace internal

// How one call is made; see ActorHandle::With.
struct CallOptions {
  // How often the call is sent again when the actor died before it replied; -1:
  // for ever. It may then have run more than once. Meanwhile it waits for the
  // restart. Absent: as the actor's creator said.
  std::optional<int> max_retries;
  // Runs in this group instead of the method's own.
  std::string concurrency_group;
  // The result goes to the object store of the actor's node, as with Put, and
  // stays there as long as any process has an ObjectRef to it; Get fetches it,
  // and so does an actor that it is passed to, straight from there. Costs two
  // messages to stores, and a copy. RESOURCE_EXHAUSTED: the store has no room.
  bool keep_result = false;
  // The call has so long from now on, whatever it waits for; restarts and
  // retries included. Then its ObjectRef fails with DEADLINE_EXCEEDED, and it
  // is cancelled: one that has not begun never runs, a running one sees
  // ActorContext::cancelled(), and its result is dropped. 0 or less: it fails
  // at once.
  absl::Duration timeout = absl::InfiniteDuration();
};

// An actor whose class the holder does not know: calls go by name and are
// checked by the actor. Thread-safe; cheap to copy; may travel as an argument.
class AnyActorHandle {
 public:
  AnyActorHandle() = default;
  AnyActorHandle(std::shared_ptr<internal::Client> client,
                 internal::ActorIdentity identity)
      : client_(std::move(client)), identity_(std::move(identity)) {}

  const std::string& actor_id() const { return identity_.actor_id; }
  const std::string& class_name() const { return identity_.class_name; }
  const std::string& name() const { return identity_.name; }
  std::string ToString() const { return identity_.ToString(); }
  bool empty() const { return identity_.actor_id.empty(); }

  // Calls the method registered as `method` and expects a result that decodes
  // as R (void: any result is dropped). See ObjectRef::Get for the errors;
  // UNIMPLEMENTED, the actor has no such method.
  template <class R, class... Args>
  ObjectRef<R> CallByName(absl::string_view method, Args&&... args) const {
    return CallByNameWith<R>(CallOptions(), method,
                             std::forward<Args>(args)...);
  }
  template <class R, class... Args>
  ObjectRef<R> CallByNameWith(const CallOptions& options,
                              absl::string_view method, Args&&... args) const {
    const std::tuple<std::decay_t<Args>...> values(std::forward<Args>(args)...);
    return Send<R>(method, values,
                   std::type_identity<std::tuple<internal::ValueOf<Args>...>>(),
                   options);
  }

  // Blocks until the actor's constructor has run. Errors: UNAVAILABLE, it died
  // (with the cause). DEADLINE_EXCEEDED (with what it waits for).
  absl::Status WaitReady(
      absl::Duration timeout = absl::InfiniteDuration()) const;

  // How the actor fares: which methods run and since when, how many calls wait
  // and were done. It answers beside whatever runs in it, and needs no
  // concurrency group for that. Its type is in proto/actor.pb.h. Errors:
  // UNAVAILABLE, it is not up (with the cause), or out of reach.
  // DEADLINE_EXCEEDED, no answer within `timeout`. NOT_FOUND, it died so long
  // ago that the head has forgotten it.
  absl::StatusOr<v1::InspectResponse> Inspect(
      absl::Duration timeout = absl::Seconds(10)) const;

  // Ends the actor. With no_restart = false only its process ends, and it comes
  // back if it has restarts left; one that waits for its first or next process
  // is left alone. Pending calls fail. Returns once the head has ordered it:
  // the process may answer for a moment more.
  absl::Status Kill(bool no_restart = true) const;

  const internal::ActorIdentity& identity() const { return identity_; }

 protected:
  template <class R, class Tuple, class Parameters>
  ObjectRef<R> Send(absl::string_view method, const Tuple& values,
                    std::type_identity<Parameters> parameters,
                    const CallOptions& options) const {
    absl::StatusOr<internal::EncodedArguments> args =
        internal::EncodeArguments(values, parameters);
    if (!args.ok()) return ObjectRef<R>(FailedCall(method, args.status()));
    return ObjectRef<R>(Submit(method, *std::move(args), options));
  }

 private:
  std::shared_ptr<internal::CallState> Submit(absl::string_view method,
                                              internal::EncodedArguments args,
                                              const CallOptions& options) const;
  std::shared_ptr<internal::CallState> FailedCall(absl::string_view method,
                                                  absl::Status status) const;

  std::shared_ptr<internal::Client> client_;
  internal::ActorIdentity identity_;
};

template <class T>
class ActorHandle;

// A handle with options for the calls that are made through it.
template <class T>
class ActorCaller {
 public:
  ActorCaller(ActorHandle<T> handle, CallOptions options)
      : handle_(std::move(handle)), options_(std::move(options)) {}

  // As ActorHandle::Call.
  template <auto Method, class... Args>
  auto Call(Args&&... args) const {
    return handle_.template CallWith<Method>(options_,
                                             std::forward<Args>(args)...);
  }

 private:
  ActorHandle<T> handle_;
  CallOptions options_;
};

template <class T>
class ActorHandle : public AnyActorHandle {
 public:
  using AnyActorHandle::AnyActorHandle;

  // Calls a method, e.g. counter.Call<&Counter::Add>(3), and returns at once.
  // Calls of one process to one actor run in the order in which they are made,
  // those of one concurrency group at least.
  template <auto Method, class... Args>
  auto Call(Args&&... args) const {
    return CallWith<Method>(CallOptions(), std::forward<Args>(args)...);
  }

  // counter.With({.max_retries = 3}).Call<&Counter::Add>(3).
  ActorCaller<T> With(CallOptions options) const {
    return ActorCaller<T>(*this, std::move(options));
  }

 private:
  friend class ActorCaller<T>;

  template <auto Method, class... Args>
  auto CallWith(const CallOptions& options, Args&&... args) const {
    static_assert(internal::IsActor<T>,
                  "T is no actor class here: its MINIRAY_ACTOR must stand "
                  "before this line");
    using Definition = decltype(MinirayActor(static_cast<const T*>(nullptr)));
    static_assert(Definition::template Has<Method>(),
                  "this method is not listed in the class's MINIRAY_ACTOR");
    using Traits = internal::MethodTraits<decltype(Method)>;
    using Result = typename internal::ResultOf<typename Traits::Result>::type;
    using Parameters = typename Traits::Arguments;
    static_assert(std::tuple_size_v<Parameters> == sizeof...(Args),
                  "wrong number of arguments for this method");
    static_assert(internal::ArgumentsFor<Parameters, Args...>::Fit(),
                  "an argument does not convert to this method's parameter "
                  "(an ObjectRef<T> stands for a T, and for nothing else)");
    // An lvalue is copied here, so that an unshared tensor may be sent without
    // a copy (see tensor_codec.h).
    const typename internal::ArgumentsFor<Parameters, Args...>::type values(
        std::forward<Args>(args)...);
    return this->template Send<Result>(
        MinirayActor(static_cast<const T*>(nullptr)).template Name<Method>(),
        values, std::type_identity<Parameters>(), options);
  }
};

// The name that a method is registered with, for ConcurrencyGroup::methods.
template <class T, auto Method>
const std::string& MethodName() {
  return MinirayActor(static_cast<const T*>(nullptr)).template Name<Method>();
}
template <auto Method>
const std::string& MethodName() {
  return MethodName<typename internal::MethodTraits<decltype(Method)>::Class,
                    Method>();
}

// The call shall not run: one that still waits fails with CANCELLED and never
// runs; a running one sees ActorContext::cancelled(), and its result is what
// the method makes of it. Nothing happens to a call that is done.
template <class T>
void Cancel(const ObjectRef<T>& ref) {
  if (ref.state() != nullptr) ref.state()->Cancel();
}

// Ends an actor; see AnyActorHandle::Kill.
inline absl::Status Kill(const AnyActorHandle& actor, bool no_restart = true) {
  return actor.Kill(no_restart);
}

namespace internal {
void EncodeActorRef(const AnyActorHandle& handle, WireWriter* out);
absl::Status DecodeActorRef(const ValueView& view, AnyActorHandle* out);
}  // namespace internal

template <>
struct Codec<AnyActorHandle> {
  static absl::Status Encode(const AnyActorHandle& handle, WireWriter* out) {
    internal::EncodeActorRef(handle, out);
    return absl::OkStatus();
  }
  static absl::Status Decode(const ValueView& view, AnyActorHandle* out) {
    return internal::DecodeActorRef(view, out);
  }
};

template <class T>
struct Codec<ActorHandle<T>> {
  static absl::Status Encode(const ActorHandle<T>& handle, WireWriter* out) {
    internal::EncodeActorRef(handle, out);
    return absl::OkStatus();
  }
  static absl::Status Decode(const ValueView& view, ActorHandle<T>* out) {
    MR_RETURN_IF_ERROR(internal::DecodeActorRef(view, out));
    const std::string expected = internal::DemangledName(typeid(T));
    if (out->class_name() != expected) {
      return absl::InvalidArgumentError(absl::StrCat("expected a handle of ",
                                                     expected, ", got one of ",
                                                     out->class_name()));
    }
    return absl::OkStatus();
  }
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_API_ACTOR_HANDLE_H_
