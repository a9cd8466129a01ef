// Where a pass over a Dataset is. Not for users.

#ifndef MINIRAY_TRAIN_DATA_STREAM_STATE_H_
#define MINIRAY_TRAIN_DATA_STREAM_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "train/data/deal.h"

namespace miniray::train {

struct DealState {
  Deal deal;          // With the seed of the options.
  int64_t taken = 0;  // Records, by each rank (or all of its own).

  friend bool operator==(const DealState&, const DealState&) = default;
};

// Each deal is of what the one before it left untaken. The first one's seed and
// shuffling say in which order the blocks are, in all of the epoch.
struct StreamState {
  int64_t epoch = 0;
  int64_t num_records = 0;  // Of the data set, and its blocks.
  int64_t num_blocks = 0;
  std::vector<DealState> deals;  // None: the epoch has not begun.

  friend bool operator==(const StreamState&, const StreamState&) = default;
};

// As one line of JSON, and back. Errors: INVALID_ARGUMENT, not such a text, or
// numbers that cannot be.
std::string EncodeStreamState(const StreamState& state);
absl::StatusOr<StreamState> DecodeStreamState(absl::string_view text);

// The order of the blocks, and the last deal: its seed as RankOrder takes it,
// and the places that it deals.
struct EpochPlan {
  std::vector<int64_t> block_order;
  Places places;
  Deal deal;
  int64_t taken = 0;
};

// `state` has a deal at least. Costs as many steps as records were taken in
// all deals but the last.
EpochPlan PlanEpoch(const StreamState& state);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_STREAM_STATE_H_
