#include "ps/strategies/fedadagrad.h"

namespace miniray::ps {

MINIRAY_SYNC_STRATEGY("fedadagrad", FedAdagradStrategy);

}  // namespace miniray::ps
