#include "ps/strategies/fedavgm.h"

namespace miniray::ps {

MINIRAY_SYNC_STRATEGY("fedavgm", FedAvgMStrategy);

}  // namespace miniray::ps
