// A plug-in that needs what no program has.

#include "runtime/api/miniray.h"

namespace elsewhere {
int NobodyHasThis(int n);
}  // namespace elsewhere

namespace miniray {
const int from_elsewhere = elsewhere::NobodyHasThis(1);
}  // namespace miniray
