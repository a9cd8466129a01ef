// MINIRAY_ACTOR makes a class an actor class.
//
//   class Counter {
//    public:
//     explicit Counter(int64_t start);
//     int64_t Add(int64_t n);
//     absl::StatusOr<std::string> Describe() const;
//   };
//   MINIRAY_ACTOR(Counter, Constructor<int64_t>, &Counter::Add,
//                 &Counter::Describe);
//
// It stands in the class's namespace, after the class: in the program's source,
// or in the header when several files use the class. Arguments and results must
// have a Codec (runtime/wire/codec.h). A method may return void, a value,
// absl::Status or absl::StatusOr; it may throw. Methods of one actor run one at
// a time, so the class needs no locks, unless ActorOptions say otherwise. A
// method that itself calls actors of the same class is defined after the macro,
// outside the class.
//
// If the class has
//   S SaveState() const;              // or absl::StatusOr<S>
//   void RestoreState(const S& s);    // or absl::Status
// for any S that can travel, a restarted actor goes on with the state that it
// had: see ActorOptions::save_state. They are not listed in the macro.

#ifndef MINIRAY_RUNTIME_API_ACTOR_MACRO_H_
#define MINIRAY_RUNTIME_API_ACTOR_MACRO_H_

#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/actor/registry.h"
#include "runtime/api/object_ref.h"
#include "runtime/base/status_macros.h"
#include "runtime/client/object_client.h"
#include "runtime/wire/codec.h"

#define MINIRAY_ACTOR(Class, ...)                                    \
  [[maybe_unused]] inline auto MinirayActor(const Class*) {          \
    using ::miniray::internal::Constructor;                          \
    return ::miniray::internal::ActorDefinition<Class, __VA_ARGS__>{ \
        #__VA_ARGS__};                                               \
  }                                                                  \
  [[maybe_unused]] static const bool MR_CONCAT_(miniray_registered_, \
                                                __COUNTER__) =       \
      ::miniray::internal::RegisterActor<Class>()

namespace miniray {
namespace internal {

// Names the parameter types of the constructor that actors are made with.
template <class... Args>
struct Constructor {};

template <class Method>
struct MethodTraits;
template <class C, class R, class... Args>
struct MethodTraits<R (C::*)(Args...)> {
  static constexpr bool kIsConst = false;
  using Class = C;
  using Result = R;
  using Arguments = std::tuple<std::decay_t<Args>...>;
};
template <class C, class R, class... Args>
struct MethodTraits<R (C::*)(Args...) const> : MethodTraits<R (C::*)(Args...)> {
  static constexpr bool kIsConst = true;
};
template <class C, class R, class... Args>
struct MethodTraits<R (C::*)(Args...) noexcept>
    : MethodTraits<R (C::*)(Args...)> {};
template <class C, class R, class... Args>
struct MethodTraits<R (C::*)(Args...) const noexcept>
    : MethodTraits<R (C::*)(Args...) const> {};

// What a caller receives for a method's return type: StatusOr<T> and T arrive
// as T, Status and void as void.
template <class R>
struct ResultOf {
  using type = std::decay_t<R>;
};
template <class T>
struct ResultOf<absl::StatusOr<T>> {
  using type = T;
};
template <>
struct ResultOf<absl::Status> {
  using type = void;
};

// Decodes an argument; fetches it first if it lies elsewhere and the parameter
// is the value itself.
template <class T>
absl::Status DecodeArgument(const absl::Cord& arg, T* out) {
  if constexpr (!IsObjectRef<T>::value) {
    if (IsReference(arg)) {
      MR_ASSIGN_OR_RETURN(const FetchedValue value, ResolveReference(arg));
      const AdoptionScope scope(value.own);
      return DecodeValue(value.bytes, out);
    }
  }
  return DecodeValue(arg, out);
}

// Decodes `args` into *out; an error names the argument.
template <class Tuple>
absl::Status DecodeArguments(const ArgumentList& args, Tuple* out) {
  constexpr size_t kSize = std::tuple_size_v<Tuple>;
  if (args.size() != kSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("takes ", kSize, " arguments, got ", args.size()));
  }
  // Held before the method runs: the caller holds them until it has run.
  const ArrivedReferences arrived;
  absl::Status status;
  size_t i = 0;
  auto decode = [&](auto* item) {
    status = Annotate(DecodeArgument(args[i], item),
                      absl::StrCat("argument ", i + 1));
    ++i;
    return status.ok();
  };
  std::apply([&](auto&... item) { (void)(decode(&item) && ...); }, *out);
  return status;
}

// What is kept of an argument `Arg` for a parameter `Parameter` until it is
// encoded: the parameter's value, or the ObjectRef that stands for it.
template <class Parameter, class Arg>
struct ArgumentFor {
  using Given = std::decay_t<Arg>;
  static constexpr bool kIsRef =
      IsObjectRef<Given>::value && !std::is_same_v<Given, Parameter>;
  using type = std::conditional_t<kIsRef, Given, Parameter>;
  static constexpr bool Fits() {
    if constexpr (kIsRef) {
      return std::is_same_v<typename IsObjectRef<Given>::Value, Parameter>;
    } else {
      return std::is_constructible_v<Parameter, Arg&&>;
    }
  }
};

struct EncodedArguments {
  ArgumentList args;
  // See CallRequest.
  std::vector<std::pair<size_t, std::shared_ptr<CallState>>> refs;
  std::vector<std::shared_ptr<CallState>> holds;
};

// The inverse: encodes `values`; Parameters... are what the callee expects, in
// whose place an ObjectRef may stand.
template <class... Parameters, class Tuple>
absl::StatusOr<EncodedArguments> EncodeArguments(
    const Tuple& values, std::type_identity<std::tuple<Parameters...>>) {
  EncodedArguments result;
  ReferenceHolds holds;
  absl::Status status;
  auto encode = [&]<class Parameter, class Item>(std::type_identity<Parameter>,
                                                 const Item& item) {
    if constexpr (IsObjectRef<Item>::value) {
      // By reference where the parameter is an ObjectRef, else by value.
      if (item.state() == nullptr) {
        status = absl::FailedPreconditionError("empty ObjectRef");
      } else if (IsObjectRef<Parameter>::value &&
                 !item.state()->by_reference()) {
        status = NotByReference(*item.state());
      } else {
        result.refs.emplace_back(result.args.size(), item.state());
        result.args.emplace_back();
      }
    } else {
      auto encoded = EncodeValue(item);
      status = encoded.status();
      if (status.ok()) result.args.push_back(*std::move(encoded));
    }
    status =
        Annotate(status, absl::StrCat("argument ", result.args.size() + 1));
    return status.ok();
  };
  std::apply(
      [&](const auto&... item) {
        (void)(encode(std::type_identity<Parameters>(), item) && ...);
      },
      values);
  MR_RETURN_IF_ERROR(status);
  result.holds = std::move(holds.calls);
  return result;
}

// For what does not take references: constructors.
template <class Tuple>
absl::StatusOr<ArgumentList> EncodeArguments(const Tuple& values) {
  ArgumentList args;
  absl::Status status;
  auto encode = [&](const auto& item) {
    auto encoded = EncodeValue(item);
    status =
        Annotate(encoded.status(), absl::StrCat("argument ", args.size() + 1));
    if (status.ok()) args.push_back(*std::move(encoded));
    return status.ok();
  };
  std::apply([&](const auto&... item) { (void)(encode(item) && ...); }, values);
  MR_RETURN_IF_ERROR(status);
  return args;
}

template <class R>
absl::StatusOr<absl::Cord> EncodeResult(R result) {
  if constexpr (std::is_same_v<R, absl::Status>) {
    MR_RETURN_IF_ERROR(result);
    return absl::Cord();
  } else if constexpr (!std::is_same_v<typename ResultOf<R>::type, R>) {
    MR_RETURN_IF_ERROR(result.status());
    return EncodeValue(*std::move(result));
  } else {
    return EncodeValue(result);
  }
}

// As EncodeResult, with what the result refers to.
template <class R>
absl::StatusOr<EncodedResult> EncodeHeldResult(R result) {
  ReferenceHolds holds;
  MR_ASSIGN_OR_RETURN(absl::Cord bytes, EncodeResult<R>(std::move(result)));
  return EncodedResult{std::move(bytes),
                       {holds.calls.begin(), holds.calls.end()}};
}

template <class C, auto Method>
absl::StatusOr<EncodedResult> InvokeMethod(void* object,
                                           const ArgumentList& args) {
  using Traits = MethodTraits<decltype(Method)>;
  typename Traits::Arguments values;
  MR_RETURN_IF_ERROR(DecodeArguments(args, &values));
  auto call = [&](auto&... value) -> decltype(auto) {
    return (static_cast<C*>(object)->*Method)(std::move(value)...);
  };
  if constexpr (std::is_void_v<typename Traits::Result>) {
    std::apply(call, values);
    return EncodedResult();
  } else {
    return EncodeHeldResult<std::decay_t<typename Traits::Result>>(
        std::apply(call, values));
  }
}

// A class whose state survives a restart: SaveState() const returns a state of
// any type that can travel (or a StatusOr of it), RestoreState takes it.
template <class C>
concept HasSaveState = requires(const C& object) {
  object.SaveState();
};

template <class C>
using StateOf = typename ResultOf<
    std::decay_t<decltype(std::declval<const C&>().SaveState())>>::type;

template <class C>
concept SavesState = HasSaveState<C> && requires(C& object) {
  object.RestoreState(std::declval<const StateOf<C>&>());
};

template <class C>
absl::StatusOr<absl::Cord> SaveStateOf(const void* object) {
  return EncodeResult<
      std::decay_t<decltype(std::declval<const C&>().SaveState())>>(
      static_cast<const C*>(object)->SaveState());
}

template <class C>
absl::Status RestoreStateOf(void* object, const absl::Cord& bytes) {
  StateOf<C> state{};
  {
    const ArrivedReferences arrived;
    MR_RETURN_IF_ERROR(DecodeValue(bytes, &state));
  }
  using Result = decltype(std::declval<C&>().RestoreState(state));
  if constexpr (std::is_same_v<Result, absl::Status>) {
    return static_cast<C*>(object)->RestoreState(std::as_const(state));
  } else {
    static_cast<C*>(object)->RestoreState(std::as_const(state));
    return absl::OkStatus();
  }
}

template <class C, class Ctor, auto... Methods>
struct ActorDefinition;

template <class C, class... Args, auto... Methods>
struct ActorDefinition<C, Constructor<Args...>, Methods...> {
  using Class = C;
  using ConstructorArguments = std::tuple<std::decay_t<Args>...>;
  static_assert(!HasSaveState<C> || SavesState<C>,
                "the class has SaveState() const, but no RestoreState that "
                "takes what it returns");
  const char* macro_arguments;

  template <auto Method>
  static constexpr bool Has() {
    return (
        std::is_same_v<std::integral_constant<decltype(Method), Method>,
                       std::integral_constant<decltype(Methods), Methods>> ||
        ...);
  }

  // REQUIRES: Has<Method>().
  template <auto Method>
  const std::string& Name() const {
    static const std::string* const name = [this] {
      size_t index = 0;
      (void)((!std::is_same_v<
                  std::integral_constant<decltype(Method), Method>,
                  std::integral_constant<decltype(Methods), Methods>> &&
              ++index) &&
             ...);
      return new std::string(MethodNames(macro_arguments)[index]);
    }();
    return *name;
  }

  ActorClass MakeClass() const {
    ActorClass result;
    result.name = DemangledName(typeid(C));
    result.construct =
        [](const ArgumentList& args) -> absl::StatusOr<std::shared_ptr<void>> {
      ConstructorArguments values;
      MR_RETURN_IF_ERROR(DecodeArguments(args, &values));
      return std::apply(
          [](auto&... value) -> std::shared_ptr<void> {
            return std::make_shared<C>(std::move(value)...);
          },
          values);
    };
    const std::vector<std::string> names = MethodNames(macro_arguments);
    size_t i = 0;
    (result.methods.emplace(
         names[i++],
         ActorClass::Method{&InvokeMethod<C, Methods>,
                            MethodTraits<decltype(Methods)>::kIsConst}),
     ...);
    if constexpr (SavesState<C>) {
      result.save = &SaveStateOf<C>;
      result.restore = &RestoreStateOf<C>;
    }
    return result;
  }
};

// A MINIRAY_ACTOR of a base class does not count.
template <class C>
concept IsActor = requires(const C* actor) {
  requires std::is_same_v<typename decltype(MinirayActor(actor))::Class, C>;
};

template <class C>
bool RegisterActor() {
  ActorRegistry::Get().Register(
      MinirayActor(static_cast<const C*>(nullptr)).MakeClass());
  return true;
}

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_API_ACTOR_MACRO_H_
