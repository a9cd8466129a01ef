#include "ps/worker_methods.h"

#include "runtime/actor/registry.h"

namespace miniray::ps {

bool HasMethod(const AnyActorHandle& worker, absl::string_view method) {
  const auto found =
      miniray::internal::ActorRegistry::Get().Find(worker.class_name());
  return found.ok() && (*found)->methods.contains(method);
}

bool BeginsAnew(const AnyActorHandle& worker) {
  const auto found =
      miniray::internal::ActorRegistry::Get().Find(worker.class_name());
  return found.ok() && (*found)->restore == nullptr;
}

}  // namespace miniray::ps
