// How glibc's malloc is set in the processes of actors.

#ifndef MINIRAY_RUNTIME_ACTOR_ACTOR_MALLOC_H_
#define MINIRAY_RUNTIME_ACTOR_ACTOR_MALLOC_H_

namespace miniray {

inline constexpr char kMallocVariable[] = "GLIBC_TUNABLES";

// - Huge pages: fresh tensors cost a fraction of the page faults.
// - One heap for all threads: methods do not run in the main thread, and glibc
//   gives the heaps of other threads back to the system more eagerly.
// - Blocks up to 32 MiB come from the heap, and what is free at its end stays
//   (1 TiB of it: all). A training step takes and frees the same blocks each
//   time. By itself glibc keeps 64 MiB there at most, and whether those of a
//   step lie there depends on what was taken before: of two processes that
//   train the same model, one clears new pages in each step and the other does
//   not. IdleMemory gives back what is not needed any more.
// Larger blocks are mapped one by one and given back at once. From the heap
// they would be faster, too, but where their sizes change glibc finds no place
// for them again: several times the memory.
inline constexpr char kActorMallocSettings[] =
    "glibc.malloc.hugetlb=1"
    ":glibc.malloc.arena_max=1"
    ":glibc.malloc.mmap_threshold=33554432"
    ":glibc.malloc.trim_threshold=1099511627776";

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_ACTOR_MALLOC_H_
