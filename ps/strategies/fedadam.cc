#include "ps/strategies/fedadam.h"

namespace miniray::ps {

MINIRAY_SYNC_STRATEGY("fedadam", FedAdamStrategy);

}  // namespace miniray::ps
