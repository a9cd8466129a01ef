#include "ps/strategies/diloco.h"

namespace miniray::ps {

MINIRAY_SYNC_STRATEGY("diloco", DiLoCoStrategy);

}  // namespace miniray::ps
