#include "runtime/base/malloc.h"

#include <cstddef>
#include <cstdlib>

namespace miniray {

void KeepFreedMemory() {
  // glibc moves its threshold for mapped blocks up to the largest one that was
  // freed, 32 MiB at most, and that for giving memory back to twice as much.
  constexpr size_t kLargest = (size_t{32} << 20) - (size_t{64} << 10);
  static const bool done = [] {
    // volatile: the compiler may leave out a pair of malloc and free.
    void* volatile block = std::malloc(kLargest);
    std::free(block);
    return true;
  }();
  (void)done;
}

}  // namespace miniray
