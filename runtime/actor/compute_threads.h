// The number of threads that the libraries of an actor process compute with.

#ifndef MINIRAY_RUNTIME_ACTOR_COMPUTE_THREADS_H_
#define MINIRAY_RUNTIME_ACTOR_COMPUTE_THREADS_H_

namespace miniray {
namespace internal {

// Sets it for the libraries that this process has loaded (OpenMP, OpenBLAS,
// LibTorch), and for the calling thread. For a process forked from a template,
// where OMP_NUM_THREADS in the environment comes too late.
void SetComputeThreads(int threads);

// The same for a further thread of the process; nothing if SetComputeThreads
// was not called. OpenMP counts by thread.
void EnterComputeThread();

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_COMPUTE_THREADS_H_
