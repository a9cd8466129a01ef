// The strategy of ps/README.md as a plug-in.

#include "tests/ps/median_strategy.h"
