#include "train/data/loader_position.h"

#include <algorithm>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace miniray::train {
namespace {

absl::Status CheckOptions(const DataLoaderOptions& options) {
  if (options.batch_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch_size is ", options.batch_size, "; expected at least 1"));
  }
  if (options.workers < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("workers is ", options.workers, "; expected at least 0"));
  }
  if (options.prefetch < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prefetch is ", options.prefetch,
        "; expected at least 1 (for no worker threads, set workers to 0)"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LoaderPosition> LoaderPosition::Create(
    int64_t num_samples, int rank, int world_size,
    const DataLoaderOptions& options) {
  MR_RETURN_IF_ERROR(CheckOptions(options));
  MR_ASSIGN_OR_RETURN(DistributedSampler sampler,
                      DistributedSampler::Create(num_samples, rank, world_size,
                                                 {.tail = options.tail,
                                                  .shuffle = options.shuffle,
                                                  .seed = options.seed}));
  return LoaderPosition(std::move(sampler), options);
}

LoaderPosition::LoaderPosition(DistributedSampler sampler,
                               const DataLoaderOptions& options)
    : sampler_(std::make_shared<DistributedSampler>(std::move(sampler))),
      batch_size_(options.batch_size),
      drop_last_(options.drop_last) {}

void LoaderPosition::BeginPass() {
  if (in_pass_) {
    throw std::logic_error(
        "a loop over this data loader runs already; prepare another loader for "
        "a loop within it");
  }
  in_pass_ = true;
  batches_ = 0;
}

void LoaderPosition::EndPass() {
  in_pass_ = false;
  batches_ = 0;
  sampler_->SetEpoch(sampler_->epoch() + 1);
}

void LoaderPosition::SetEpoch(int64_t epoch) {
  if (in_pass_) {
    throw std::logic_error("SetEpoch was called within a loop over the loader");
  }
  if (epoch < 0) {
    throw std::invalid_argument(
        absl::StrCat("epoch is ", epoch, "; expected at least 0"));
  }
  sampler_->SetEpoch(epoch);
}

int64_t LoaderPosition::Steps(int64_t samples) const {
  return samples / batch_size_ +
         (!drop_last_ && samples % batch_size_ > 0 ? 1 : 0);
}

std::string LoaderPosition::State() const {
  // Samples that drop_last leaves out are no part of the epoch.
  const int64_t samples =
      in_pass_ && batches_ >= steps()
          ? sampler_->pass_size()
          : std::min(batches_ * batch_size_, sampler_->pass_size());
  return EncodeSamplerState(sampler_->StateAfter(samples));
}

absl::Status LoaderPosition::Restore(absl::string_view state) {
  if (in_pass_) {
    return absl::FailedPreconditionError(
        "Restore was called within a loop over the data loader; call it before "
        "the loop");
  }
  MR_ASSIGN_OR_RETURN(const SamplerState decoded, DecodeSamplerState(state));
  return sampler_->Restore(decoded);
}

}  // namespace miniray::train
