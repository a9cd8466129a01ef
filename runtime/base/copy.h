// Copying large blocks of memory.

#ifndef MINIRAY_RUNTIME_BASE_COPY_H_
#define MINIRAY_RUNTIME_BASE_COPY_H_

#include <cstddef>

namespace miniray {

// From this size on, what is copied pushes out of the caches whatever was in
// them, itself too.
inline constexpr size_t kPastCacheBytes = 1 << 20;

// Copies what will not be read again soon: past the caches, which spares
// reading the target's memory first. The two do not overlap.
void CopyPastCache(void* to, const void* from, size_t size);

// From this size on a second thread copies half of it: one does not use all of
// the memory's bandwidth.
inline constexpr size_t kTwoThreadBytes = 32 << 20;

// CopyPastCache where the size makes that worthwhile, by two threads if it is
// very large; else memcpy.
void CopyLarge(void* to, const void* from, size_t size);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_COPY_H_
