// PrepareDataLoader: LibTorch's DataLoader over one rank's samples.
//
//   MR_ASSIGN_OR_RETURN(
//       auto loader,
//       train::PrepareDataLoader(
//           torch::data::datasets::MNIST(dir).map(
//               torch::data::transforms::Normalize<>(0.13, 0.31)),
//           rank, world_size, {.batch_size = 128, .workers = 2}));
//   for (int64_t epoch = loader.epoch(); epoch < 10; ++epoch) {
//     for (auto& batch : loader) {      // The next epoch each time.
//       ... batch.data, batch.target ...
//       if (...) files["loader"] = loader.State();  // This batch is done.
//     }
//   }
//
// Needs LibTorch's data headers, which are slow to compile.

#ifndef MINIRAY_TRAIN_DATA_DATA_LOADER_H_
#define MINIRAY_TRAIN_DATA_DATA_LOADER_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "c10/core/Device.h"
#include "runtime/base/status_macros.h"
#include "torch/data/dataloader.h"
#include "torch/data/datasets/map.h"
#include "torch/data/example.h"
#include "torch/data/transforms/stack.h"
#include "train/data/data_loader_options.h"
#include "train/data/loader_position.h"
#include "train/device.h"

namespace miniray::train {

// A map-style data set's batches on one rank, epoch after epoch. Made by
// PrepareDataLoader. Movable while no loop runs. Not thread-safe; the data set
// is copied into each worker thread, as LibTorch does it.
template <class Dataset>
class PreparedDataLoader {
 public:
  using Batch = typename Dataset::BatchType;

  // An input iterator over one epoch. Its end, by ++ or by leaving the loop, is
  // the epoch's: what was read ahead is dropped.
  class Iterator;

  // device: of the options; none: batches stay where they are.
  PreparedDataLoader(Dataset dataset, LoaderPosition position,
                     const DataLoaderOptions& options,
                     std::optional<c10::Device> device);

  // Begins the next epoch, or goes on with one that Restore put in its middle.
  // A loop that was left with `break` has ended its epoch.
  //
  // Throws std::logic_error if another loop over this loader runs. The iterator
  // throws what the data set throws, from a worker thread as
  // torch::data::WorkerException with its text.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  // Of the loop that runs, or of the next one.
  int64_t epoch() const { return impl_->position.epoch(); }
  // The next loop runs over `epoch`, from its start. Throws std::logic_error if
  // one runs, std::invalid_argument if epoch is below 0.
  void SetEpoch(int64_t epoch) { impl_->position.SetEpoch(epoch); }

  // Batches of that epoch on this rank, and on the rank that has the most: the
  // same but with Tail::kUneven. What is left of it after a Restore.
  int64_t steps() const { return impl_->position.steps(); }
  int64_t max_steps() const { return impl_->position.max_steps(); }

  // The place in the data, for a checkpoint: in a loop, after the batch that is
  // in hand, whatever worker threads have read ahead. One line of JSON, the
  // same on all ranks that have taken equally many batches, good for any world
  // size and batch size. (With Tail::kUneven, after another rank has run out,
  // rank 0's is the right one, for all ranks.)
  std::string State() const { return impl_->position.State(); }

  // Goes on from `state`: the next loop has exactly the samples of its epoch
  // that were not seen. Errors: INVALID_ARGUMENT, no such state, or of a data
  // set of another size. FAILED_PRECONDITION, a loop runs.
  absl::Status Restore(absl::string_view state) {
    return impl_->position.Restore(state);
  }

 private:
  // LibTorch's, which lets nobody begin anew before the end was reached.
  class Loader : public torch::data::StatelessDataLoader<Dataset, IndexSource> {
   public:
    using torch::data::StatelessDataLoader<Dataset,
                                           IndexSource>::StatelessDataLoader;
    // Forgets what is read ahead; waits for the batches that are being read.
    void Drop() { this->shuttle_.drain(); }
  };
  struct Impl {
    Impl(Dataset dataset, LoaderPosition p, const DataLoaderOptions& options,
         std::optional<c10::Device> d)
        : position(std::move(p)),
          loader(std::move(dataset), position.index_source(),
                 LibTorchOptions(options)),
          device(d) {}
    LoaderPosition position;
    Loader loader;
    const std::optional<c10::Device> device;  // Where batches go.
  };

  static torch::data::DataLoaderOptions LibTorchOptions(
      const DataLoaderOptions& options) {
    const auto workers = static_cast<size_t>(options.workers);
    return torch::data::DataLoaderOptions(
               static_cast<size_t>(options.batch_size))
        .workers(workers)
        .max_jobs(workers * static_cast<size_t>(options.prefetch))
        .drop_last(options.drop_last);
  }

  std::unique_ptr<Impl> impl_;  // Stays where it is: threads point into it.
};

namespace internal {

// Moves the tensors of a batch to a device; all else in it stays.
inline void MoveTo(at::Tensor& tensor, const c10::Device& device) {
  if (tensor.defined()) tensor = tensor.to(device);
}
template <class Data, class Target>
void MoveTo(torch::data::Example<Data, Target>& example,
            const c10::Device& device);
template <class Element>
void MoveTo(std::vector<Element>& batch, const c10::Device& device);
template <class Other>
void MoveTo(Other&, const c10::Device&) {}

template <class Data, class Target>
void MoveTo(torch::data::Example<Data, Target>& example,
            const c10::Device& device) {
  MoveTo(example.data, device);
  if constexpr (!std::is_same_v<Target, torch::data::example::NoTarget>) {
    MoveTo(example.target, device);
  }
}
template <class Element>
void MoveTo(std::vector<Element>& batch, const c10::Device& device) {
  for (Element& element : batch) MoveTo(element, device);
}

// Whether batches are vectors of examples of tensors, which Stack stacks.
template <class Batch>
struct IsUnstacked : std::false_type {};
template <>
struct IsUnstacked<std::vector<torch::data::Example<>>> : std::true_type {};
template <>
struct IsUnstacked<std::vector<torch::data::TensorExample>> : std::true_type {};

}  // namespace internal

// Returns the loader of `rank`'s samples of `dataset`, which may be any
// stateless LibTorch data set that knows its size, with what transforms were
// mapped onto it. Examples of tensors that no collation was mapped onto are
// stacked, as PyTorch's default does: batch.data is [B, ...].
//
// Errors: INVALID_ARGUMENT, options that cannot be (with the number); those of
// DistributedSampler::Create; a data set that does not know its size. Those of
// ChooseDevice.
template <class Dataset>
auto PrepareDataLoader(Dataset dataset, int rank, int world_size,
                       const DataLoaderOptions& options = {}) {
  static_assert(!Dataset::is_stateful,
                "PrepareDataLoader takes data sets that are asked for samples "
                "by index; for streams there is train::Dataset");
  if constexpr (internal::IsUnstacked<typename Dataset::BatchType>::value) {
    using Example = typename Dataset::BatchType::value_type;
    // Not dataset.map(), which would cut a class derived from a data set.
    return PrepareDataLoader(
        torch::data::datasets::map(std::move(dataset),
                                   torch::data::transforms::Stack<Example>()),
        rank, world_size, options);
  } else {
    using Result = absl::StatusOr<PreparedDataLoader<Dataset>>;
    const torch::optional<size_t> size = dataset.size();
    if (!size.has_value()) {
      return Result(absl::InvalidArgumentError(
          "the data set does not know its size: its size() returned nothing"));
    }
    absl::StatusOr<LoaderPosition> position = LoaderPosition::Create(
        static_cast<int64_t>(*size), rank, world_size, options);
    if (!position.ok()) return Result(position.status());
    std::optional<c10::Device> device;
    if (!options.device.empty()) {
      const absl::StatusOr<c10::Device> chosen = ChooseDevice(options.device);
      if (!chosen.ok()) return Result(chosen.status());
      device = *chosen;
    }
    return Result(PreparedDataLoader<Dataset>(
        std::move(dataset), *std::move(position), options, device));
  }
}

// Implementation details follow.

template <class Dataset>
class PreparedDataLoader<Dataset>::Iterator {
 public:
  using iterator_concept = std::input_iterator_tag;
  using difference_type = std::ptrdiff_t;
  using value_type = Batch;

  Iterator(Iterator&& other) noexcept
      : impl_(std::exchange(other.impl_, nullptr)),
        batches_(std::move(other.batches_)) {}
  Iterator& operator=(Iterator&&) = delete;
  ~Iterator() {
    if (impl_ == nullptr) return;
    impl_->loader.Drop();
    impl_->position.EndPass();
  }

  Batch& operator*() { return **batches_; }
  Batch* operator->() { return &**batches_; }
  Iterator& operator++() {
    ++*batches_;
    CountBatch();
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const Iterator& it, std::default_sentinel_t) {
    return it.AtEnd();
  }

 private:
  friend class PreparedDataLoader;

  explicit Iterator(Impl* impl) : impl_(impl) {
    impl_->position.BeginPass();
    try {
      batches_.emplace(impl_->loader.begin());
      CountBatch();
    } catch (...) {
      impl_->loader.Drop();
      impl_->position.EndPass();
      throw;
    }
  }
  bool AtEnd() const { return *batches_ == impl_->loader.end(); }
  // Reads the first batch, if that has not happened.
  void CountBatch() {
    if (AtEnd()) return;
    impl_->position.CountBatch();
    if (impl_->device.has_value()) {
      internal::MoveTo(**batches_, *impl_->device);
    }
  }

  Impl* impl_;  // None: moved from.
  std::optional<torch::data::Iterator<Batch>> batches_;
};

template <class Dataset>
PreparedDataLoader<Dataset>::PreparedDataLoader(
    Dataset dataset, LoaderPosition position, const DataLoaderOptions& options,
    std::optional<c10::Device> device)
    : impl_(std::make_unique<Impl>(std::move(dataset), std::move(position),
                                   options, device)) {}

template <class Dataset>
auto PreparedDataLoader<Dataset>::begin() -> Iterator {
  return Iterator(impl_.get());
}

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_DATA_DATA_LOADER_H_
