// A plug-in with an actor class.

#include "runtime/api/miniray.h"

namespace miniray {

class Guest {
 public:
  int64_t Twice(int64_t n) { return 2 * n; }
};
MINIRAY_ACTOR(Guest, Constructor<>, &Guest::Twice);

}  // namespace miniray
