#include "train/callback.h"

#include <algorithm>

#include "glog/logging.h"

namespace miniray::train {

void TrainContext::Warn(const std::string& warning) {
  LOG(WARNING) << warning;
  if (std::find(warnings_.begin(), warnings_.end(), warning) ==
      warnings_.end()) {
    warnings_.push_back(warning);
  }
}

}  // namespace miniray::train
