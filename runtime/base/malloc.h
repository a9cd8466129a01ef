// The process's malloc.

#ifndef MINIRAY_RUNTIME_BASE_MALLOC_H_
#define MINIRAY_RUNTIME_BASE_MALLOC_H_

namespace miniray {

// Lets malloc keep tens of megabytes that were freed, instead of giving them
// back to the system at once: gRPC's buffers for large messages, and what a
// head needs for the next burst of actors, would be fresh pages each time. That
// is what glibc comes to by itself once a block of such a size was freed;
// settings of the user's own are left alone. Thread-safe.
void KeepFreedMemory();

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_MALLOC_H_
