// Where a pass over a map-style data set is, for checkpoints.

#ifndef MINIRAY_TRAIN_DATA_SAMPLER_STATE_H_
#define MINIRAY_TRAIN_DATA_SAMPLER_STATE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace miniray::train {

// Says nothing of ranks: the first `offset` samples of the epoch's order have
// been seen, by whichever rank. So it fits any world size, and is the same on
// all ranks that have done equally many steps. (With Tail::kUneven, after rank
// 1 has run out, rank 0's is the right one.)
struct SamplerState {
  int64_t epoch = 0;
  int64_t offset = 0;
  int64_t num_samples = 0;  // Of the data set.
  uint64_t seed = 0;
  bool shuffle = true;

  friend bool operator==(const SamplerState&, const SamplerState&) = default;
};

// As one line of JSON, and back. Errors: INVALID_ARGUMENT, not such a text, or
// numbers that cannot be.
std::string EncodeSamplerState(const SamplerState& state);
absl::StatusOr<SamplerState> DecodeSamplerState(absl::string_view text);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_SAMPLER_STATE_H_
