#include "train/data/distributed_sampler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "runtime/base/status_macros.h"
#include "torch/serialize/archive.h"
#include "train/data/epoch_order.h"

namespace miniray::train {
namespace {

constexpr char kArchiveKey[] = "state";

absl::Status CheckSize(int64_t num_samples, int world_size, Tail tail) {
  if (num_samples < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a data set of ",
                                                   num_samples,
                                                   " samples: none to train "
                                                   "on; expected at least 1"));
  }
  if (tail == Tail::kDrop && num_samples < world_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        num_samples, " samples on ", world_size,
        " ranks with Tail::kDrop: all would be dropped; use at most ",
        num_samples, " ranks, or Tail::kPad"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DistributedSampler> DistributedSampler::Create(
    int64_t num_samples, int rank, int world_size, Options options) {
  if (world_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("world_size is ", world_size, "; expected at least 1"));
  }
  if (rank < 0 || rank >= world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", rank, "; expected 0 to ", world_size - 1,
                     " for a world of ", world_size));
  }
  MR_RETURN_IF_ERROR(CheckSize(num_samples, world_size, options.tail));
  return DistributedSampler(num_samples, rank, world_size, options);
}

DistributedSampler::DistributedSampler(int64_t num_samples, int rank,
                                       int world_size, Options options)
    : num_samples_(num_samples),
      rank_(rank),
      world_size_(world_size),
      options_(options) {}

void DistributedSampler::SetEpoch(int64_t epoch) {
  epoch_ = epoch;
  offset_ = 0;
  next_ = 0;
  in_pass_ = false;
}

void DistributedSampler::reset(torch::optional<size_t> new_size) {
  if (in_pass_) SetEpoch(epoch_ + 1);
  if (new_size.has_value() && static_cast<int64_t>(*new_size) != num_samples_) {
    const auto size = static_cast<int64_t>(*new_size);
    const absl::Status status = CheckSize(size, world_size_, options_.tail);
    TORCH_CHECK(status.ok(), std::string(status.message()));
    // The place was one in another data set.
    num_samples_ = size;
    offset_ = 0;
  }
  in_pass_ = true;
  next_ = 0;
  order_.clear();
  if (options_.shuffle) {
    order_ = DrawOrder(num_samples_, EpochSeed(options_.seed, epoch_));
  }
}

torch::optional<std::vector<size_t>> DistributedSampler::next(
    size_t batch_size) {
  if (!in_pass_) reset();
  const int64_t count = std::min(static_cast<int64_t>(batch_size), remaining());
  if (count <= 0) return torch::nullopt;
  std::vector<size_t> indices;
  indices.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i, ++next_) {
    const int64_t place =
        (offset_ + rank_ + next_ * world_size_) % num_samples_;
    indices.push_back(static_cast<size_t>(
        order_.empty() ? place : order_[static_cast<size_t>(place)]));
  }
  return indices;
}

int64_t DistributedSampler::PassEnd() const {
  const int64_t left = num_samples_ - offset_;
  const int64_t whole = left - left % world_size_;
  switch (options_.tail) {
    case Tail::kDrop:
      return offset_ + whole;
    case Tail::kPad:
      return offset_ + whole + (whole < left ? world_size_ : 0);
    case Tail::kUneven:
      break;
  }
  return num_samples_;
}

int64_t DistributedSampler::SizeOnRank(int rank) const {
  // Places offset_ + rank, and each world_size_ further, below the end.
  const int64_t places = PassEnd() - offset_ - rank;
  return places <= 0 ? 0 : (places - 1) / world_size_ + 1;
}

SamplerState DistributedSampler::StateAfter(int64_t samples) const {
  SamplerState state{.epoch = epoch_,
                     .offset = offset_ + samples * world_size_,
                     .num_samples = num_samples_,
                     .seed = options_.seed,
                     .shuffle = options_.shuffle};
  if (in_pass_ && samples >= pass_size()) {
    ++state.epoch;
    state.offset = 0;
  }
  return state;
}

absl::Status DistributedSampler::Restore(const SamplerState& state) {
  if (state.num_samples != num_samples_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the state is of a data set of ", state.num_samples,
        " samples, and this one has ", num_samples_,
        ": the data has changed since the checkpoint was taken, or it is "
        "another's"));
  }
  if (state.epoch < 0 || state.offset < 0 || state.offset >= num_samples_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no place in a data set of ", num_samples_, " samples: epoch ",
        state.epoch, ", offset ", state.offset));
  }
  SetEpoch(state.epoch);
  offset_ = state.offset;
  options_.seed = state.seed;
  options_.shuffle = state.shuffle;
  return absl::OkStatus();
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write(kArchiveKey, c10::IValue(EncodeSamplerState(state())));
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  c10::IValue text;
  archive.read(kArchiveKey, text);
  TORCH_CHECK(text.isString(), "not the archive of a DistributedSampler");
  const absl::StatusOr<SamplerState> state =
      DecodeSamplerState(text.toStringRef());
  TORCH_CHECK(state.ok(), std::string(state.status().message()));
  const absl::Status status = Restore(*state);
  TORCH_CHECK(status.ok(), std::string(status.message()));
}

}  // namespace miniray::train
