#include "ps/strategies/adam.h"

namespace miniray::ps {

MINIRAY_SYNC_STRATEGY("adam", AdamStrategy);

}  // namespace miniray::ps
