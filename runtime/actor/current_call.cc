#include "runtime/actor/current_call.h"

namespace miniray {
namespace internal {
namespace {

constinit thread_local CurrentActor* current = nullptr;

}  // namespace

CurrentActor* CurrentActor::Get() { return current; }

void CurrentActor::Set(CurrentActor* actor) { current = actor; }

}  // namespace internal
}  // namespace miniray
