// The template of a package: a process of the program that has loaded all it
// needs and does nothing but fork actor processes, so that they need not load
// it again (LibTorch: 430 ms).
//
// It has one thread, and never uses gRPC: a fork copies neither threads nor the
// locks that they hold.

#ifndef MINIRAY_RUNTIME_ACTOR_TEMPLATE_H_
#define MINIRAY_RUNTIME_ACTOR_TEMPLATE_H_

namespace miniray {
namespace internal {

// True in a process that a worker daemon started as a template.
bool IsTemplateProcess();

// Serves as the template until the daemon is gone. Returns in the forked
// processes, which are to host actors: IsActorProcess() holds there.
void ServeAsTemplate();

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_TEMPLATE_H_
