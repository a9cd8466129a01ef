// The actor classes that this program knows: how to construct one and how to
// run its methods on serialized arguments. Filled by MINIRAY_ACTOR
// (runtime/api/actor_macro.h) before main; read by the actor host.

#ifndef MINIRAY_RUNTIME_ACTOR_REGISTRY_H_
#define MINIRAY_RUNTIME_ACTOR_REGISTRY_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace miniray {
namespace internal {

// Serialized Values, one an argument.
using ArgumentList = std::vector<absl::Cord>;

// What a method returned.
struct EncodedResult {
  absl::Cord bytes;  // A serialized Value.
  // Keeps the objects that it refers to.
  std::vector<std::shared_ptr<void>> holds;
};

struct ActorClass {
  using Constructor =
      std::function<absl::StatusOr<std::shared_ptr<void>>(const ArgumentList&)>;
  struct Method {
    // Runs on an object that `construct` made. May throw what the user's method
    // throws.
    std::function<absl::StatusOr<EncodedResult>(void*, const ArgumentList&)>
        run;
    bool is_const = false;
  };

  std::string name;  // demangled, e.g. "miniray::ps::ParameterServer"
  Constructor construct;
  std::map<std::string, Method, std::less<>> methods;
  // Null where the class has no SaveState and RestoreState. The state is a
  // serialized Value. May throw.
  std::function<absl::StatusOr<absl::Cord>(const void*)> save;
  std::function<absl::Status(void*, const absl::Cord&)> restore;
};

// Thread-safe.
class ActorRegistry {
 public:
  static ActorRegistry& Get();

  // Registers a class; a second registration under the same name is ignored
  // (a header's MINIRAY_ACTOR registers in every file that includes it).
  void Register(ActorClass actor_class);

  // Errors: NOT_FOUND with the names that are known.
  absl::StatusOr<const ActorClass*> Find(absl::string_view name) const;

 private:
  mutable absl::Mutex mu_;
  std::map<std::string, ActorClass, std::less<>> classes_ ABSL_GUARDED_BY(mu_);
};

// The C++ name of a type, e.g. "shop::Counter".
std::string DemangledName(const std::type_info& type);

// "Counter" for "shop::(anonymous namespace)::Counter".
absl::string_view ShortClassName(absl::string_view name);

// Names of the methods in the text of MINIRAY_ACTOR's arguments,
// "Constructor<int, long>, &A::Add, &A::Scale" -> {"Add", "Scale"}. A name that
// stands twice (overloads) gets a suffix "#2".
std::vector<std::string> MethodNames(absl::string_view macro_arguments);

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_REGISTRY_H_
