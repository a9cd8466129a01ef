#include "ps/strategies/fedyogi.h"

namespace miniray::ps {

MINIRAY_SYNC_STRATEGY("fedyogi", FedYogiStrategy);

}  // namespace miniray::ps
