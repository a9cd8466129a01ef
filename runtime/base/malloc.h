// The process's malloc.

#ifndef MINIRAY_RUNTIME_BASE_MALLOC_H_
#define MINIRAY_RUNTIME_BASE_MALLOC_H_

namespace miniray {

// Lets glibc's malloc keep tens of megabytes that were freed, instead of giving
// them back to the system at once: gRPC's buffers for large messages would be
// fresh pages each time. That is what it comes to by itself once a block of
// such a size was freed; settings of the user's own are left alone.
// Thread-safe.
void KeepFreedMemory();

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_MALLOC_H_
