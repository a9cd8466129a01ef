// What becomes of the samples that do not divide among the ranks.

#ifndef MINIRAY_TRAIN_DATA_TAIL_H_
#define MINIRAY_TRAIN_DATA_TAIL_H_

#include "absl/strings/string_view.h"

namespace miniray::train {

// N samples on W ranks, where W does not divide N. With kPad and kDrop each
// rank has equally many, so all do equally many steps, and gradients can be
// all-reduced without more ado.
enum class Tail {
  // The first samples of the epoch's order once more, W - N mod W of them:
  // ceil(N/W) a rank. As PyTorch's DistributedSampler does.
  kPad,
  // N mod W samples of the epoch's end are left out: floor(N/W) a rank.
  kDrop,
  // Each sample once; N mod W ranks have one more than the others. For
  // evaluation, or with ForEachJoined (train/data/join.h).
  kUneven,
};

// "pad", "drop" or "uneven".
inline absl::string_view TailName(Tail tail) {
  switch (tail) {
    case Tail::kPad:
      return "pad";
    case Tail::kDrop:
      return "drop";
    case Tail::kUneven:
      return "uneven";
  }
  return "";
}

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_TAIL_H_
