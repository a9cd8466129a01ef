#include "ps/strategies/adamw.h"

namespace miniray::ps {

MINIRAY_SYNC_STRATEGY("adamw", AdamWStrategy);

}  // namespace miniray::ps
